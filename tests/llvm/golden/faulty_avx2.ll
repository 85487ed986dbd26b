define dso_local void @"faulty"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
entry:
  %v1 = load i8, ptr %args, align 8, !invariant.load !0
  %v2 = icmp ne i8 %v1, 0
  %v3 = getelementptr i8, ptr %args, i64 8
  %v4 = load i64, ptr %v3, align 8, !invariant.load !0
  %v7 = icmp slt i64 %begin, %end
  br i1 %v7, label %loop5, label %after6
loop5:
  %v8 = phi i64 [%begin, %entry], [%v11, %endif10]
  br i1 %v2, label %then9, label %endif10
then9:
  call void @"sardonyx.fault"(ptr %context, i64 1, i64 %v8, i64 %v4, i64 9)
  br label %endif10
endif10:
  %v11 = add nsw i64 %v8, 1
  %v12 = icmp slt i64 %v11, %end
  br i1 %v12, label %loop5, label %after6
after6:
  ret void
}

define internal void @"sardonyx.fault"(ptr %context, i64 %code, i64 %a, i64 %b, i64 %c) noinline cold #0 {
  %record = load ptr, ptr %context, align 8
  %pair = cmpxchg ptr %record, i64 0, i64 %code seq_cst seq_cst
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %write, label %done
write:
  %where = getelementptr i8, ptr %context, i64 40
  %command = load i64, ptr %where, align 8
  %second = getelementptr i8, ptr %record, i64 8
  store i64 %command, ptr %second, align 8
  %third = getelementptr i8, ptr %record, i64 16
  store i64 %a, ptr %third, align 8
  %fourth = getelementptr i8, ptr %record, i64 24
  store i64 %b, ptr %fourth, align 8
  %fifth = getelementptr i8, ptr %record, i64 32
  store i64 %c, ptr %fifth, align 8
  br label %done
done:
  ret void
}

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="256" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
