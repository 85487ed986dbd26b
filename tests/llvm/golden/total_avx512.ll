define dso_local void @"total"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
entry:
  %v1 = load ptr, ptr %args, align 8, !invariant.load !0
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8, !invariant.load !0
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load i64, ptr %v4, align 8, !invariant.load !0
  %v8 = icmp slt i64 %begin, %end
  br i1 %v8, label %loop6, label %after7
loop6:
  %v9 = phi i64 [%begin, %entry], [%v42, %after13]
  %v10 = mul i64 %v9, %v5
  %v11 = getelementptr i32, ptr %v1, i64 %v10
  %v14 = icmp slt i64 0, %v5
  br i1 %v14, label %loop12, label %after13
loop12:
  %v16 = phi <8 x float> [splat (float 0x0000000000000000), %loop6], [%v26, %loop12]
  %v15 = phi i64 [0, %loop6], [%v27, %loop12]
  %v17 = sub i64 %v5, %v15
  %v18 = call i64 @llvm.smin.i64(i64 %v17, i64 8)
  %v19 = call i64 @llvm.smax.i64(i64 %v18, i64 0)
  %v20 = shl i64 -1, %v19
  %v21 = trunc i64 %v20 to i8
  %v22 = xor i8 %v21, -1
  %v23 = bitcast i8 %v22 to <8 x i1>
  %v24 = getelementptr i32, ptr %v11, i64 %v15
  %v25 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %v24, i32 4, <8 x i1> %v23, <8 x float> zeroinitializer)
  %v26 = fadd <8 x float> %v16, %v25
  %v27 = add nsw i64 %v15, 8
  %v28 = icmp slt i64 %v27, %v5
  br i1 %v28, label %loop12, label %after13
after13:
  %v29 = phi <8 x float> [splat (float 0x0000000000000000), %loop6], [%v26, %loop12]
  %v30 = shufflevector <8 x float> %v29, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v31 = shufflevector <8 x float> %v29, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v32 = fadd <4 x float> %v30, %v31
  %v33 = shufflevector <4 x float> %v32, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v34 = shufflevector <4 x float> %v32, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v35 = fadd <2 x float> %v33, %v34
  %v36 = shufflevector <2 x float> %v35, <2 x float> poison, <1 x i32> <i32 0>
  %v37 = shufflevector <2 x float> %v35, <2 x float> poison, <1 x i32> <i32 1>
  %v38 = extractelement <2 x float> %v35, i64 0
  %v39 = extractelement <2 x float> %v35, i64 1
  %v40 = fadd float %v38, %v39
  %v41 = getelementptr i32, ptr %v3, i64 %v9
  store float %v40, ptr %v41, align 4
  %v42 = add nsw i64 %v9, 1
  %v43 = icmp slt i64 %v42, %end
  br i1 %v43, label %loop6, label %after7
after7:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)

declare i64 @llvm.smax.i64(i64, i64)

declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="512" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
