define dso_local void @"early"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
entry:
  %v1 = load ptr, ptr %args, align 8, !invariant.load !0
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load i64, ptr %v2, align 8, !invariant.load !0
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8, !invariant.load !0
  %v8 = icmp slt i64 %begin, %end
  br i1 %v8, label %loop6, label %after7
loop6:
  %v9 = phi i64 [%begin, %entry], [%v24, %inlined10]
  %v13 = icmp slt i64 0, %v3
  br i1 %v13, label %loop11, label %after12
loop11:
  %v14 = phi i64 [0, %loop6], [%v20, %endif19]
  %v15 = getelementptr i64, ptr %v1, i64 %v14
  %v16 = load i64, ptr %v15, align 8
  %v17 = icmp eq i64 %v16, %v9
  br i1 %v17, label %then18, label %endif19
then18:
  br label %inlined10
endif19:
  %v20 = add nsw i64 %v14, 1
  %v21 = icmp slt i64 %v20, %v3
  br i1 %v21, label %loop11, label %after12
after12:
  br label %inlined10
inlined10:
  %v22 = phi i64 [%v14, %then18], [-1, %after12]
  %v23 = getelementptr i64, ptr %v5, i64 %v9
  store i64 %v22, ptr %v23, align 8
  %v24 = add nsw i64 %v9, 1
  %v25 = icmp slt i64 %v24, %end
  br i1 %v25, label %loop6, label %after7
after7:
  ret void
}

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="128" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
