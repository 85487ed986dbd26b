define dso_local void @"collatz"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
entry:
  %v1 = load ptr, ptr %args, align 8, !invariant.load !0
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8, !invariant.load !0
  %v6 = icmp slt i64 %begin, %end
  br i1 %v6, label %loop4, label %after5
loop4:
  %v7 = phi i64 [%begin, %entry], [%v34, %after12]
  %v8 = getelementptr i64, ptr %v1, i64 %v7
  %v9 = load i64, ptr %v8, align 8
  br label %while10
while10:
  %v13 = phi i64 [%v9, %loop4], [%v30, %endif19]
  %v14 = phi i64 [0, %loop4], [%v32, %endif19]
  %v15 = icmp ne i64 %v13, 1
  br i1 %v15, label %body11, label %after12
body11:
  %v16 = and i64 %v13, 1
  %v17 = icmp eq i64 %v16, 1
  br i1 %v17, label %then18, label %else20
then18:
  %v21 = icmp sgt i64 %v13, 1000000
  br i1 %v21, label %then22, label %else24
then22:
  br label %endif23
else24:
  %v25 = mul i64 %v13, 3
  %v26 = add i64 %v25, 1
  br label %endif23
endif23:
  %v27 = phi i64 [1, %then22], [%v26, %else24]
  %v28 = phi i64 [-2, %then22], [%v14, %else24]
  br label %endif19
else20:
  %v29 = ashr i64 %v13, 1
  br label %endif19
endif19:
  %v30 = phi i64 [%v27, %endif23], [%v29, %else20]
  %v31 = phi i64 [%v28, %endif23], [%v14, %else20]
  %v32 = add i64 %v31, 1
  br label %while10
after12:
  %v33 = getelementptr i64, ptr %v3, i64 %v7
  store i64 %v14, ptr %v33, align 8
  %v34 = add nsw i64 %v7, 1
  %v35 = icmp slt i64 %v34, %end
  br i1 %v35, label %loop4, label %after5
after5:
  ret void
}

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="256" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
