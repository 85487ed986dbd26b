define dso_local void @"tanh_f32_4"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
entry:
  %v1 = load ptr, ptr %args, align 8, !invariant.load !0
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8, !invariant.load !0
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8, !invariant.load !0
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load i64, ptr %v6, align 8, !invariant.load !0
  %v10 = icmp slt i64 %begin, %end
  br i1 %v10, label %loop8, label %after9
loop8:
  %v11 = phi i64 [%begin, %entry], [%v54, %after13]
  %v14 = icmp slt i64 0, %v7
  br i1 %v14, label %loop12, label %after13
loop12:
  %v15 = phi i64 [0, %loop8], [%v52, %loop12]
  %v16 = getelementptr i32, ptr %v1, i64 %v15
  %v17 = load <4 x float>, ptr %v16, align 4
  %v18 = call <4 x float> @llvm.fabs.v4f32(<4 x float> %v17)
  %v19 = fcmp ogt <4 x float> %v18, splat (float 0x4024000000000000)
  %v20 = select <4 x i1> %v19, <4 x float> splat (float 0x4024000000000000), <4 x float> %v18
  %v21 = fmul <4 x float> %v20, splat (float 0x4000000000000000)
  %v22 = fmul <4 x float> %v21, splat (float 0x3FF7154760000000)
  %v23 = call <4 x float> @llvm.roundeven.v4f32(<4 x float> %v22)
  %v24 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v23, <4 x float> splat (float 0xBFE62E4000000000), <4 x float> %v21)
  %v25 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v23, <4 x float> splat (float 0xBEB7F7D1C0000000), <4 x float> %v24)
  %v26 = fsub <4 x float> %v23, splat (float 0x3FF0000000000000)
  %v27 = fadd <4 x float> %v26, splat (float 0x4168000FE0000000)
  %v28 = bitcast <4 x float> %v27 to <4 x i32>
  %v29 = shl <4 x i32> %v28, splat (i32 23)
  %v30 = bitcast <4 x i32> %v29 to <4 x float>
  %v31 = call <4 x float> @llvm.fma.v4f32(<4 x float> splat (float 0x3F56DB6F60000000), <4 x float> %v25, <4 x float> splat (float 0x3F8123CE00000000))
  %v32 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v31, <4 x float> %v25, <4 x float> splat (float 0x3FA55545A0000000))
  %v33 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v32, <4 x float> %v25, <4 x float> splat (float 0x3FC55548C0000000))
  %v34 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v33, <4 x float> %v25, <4 x float> splat (float 0x3FE0000000000000))
  %v35 = fmul <4 x float> %v25, %v25
  %v36 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v34, <4 x float> %v35, <4 x float> %v25)
  %v37 = fsub <4 x float> %v30, splat (float 0x3FE0000000000000)
  %v38 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v30, <4 x float> %v36, <4 x float> %v37)
  %v39 = fadd <4 x float> %v38, splat (float 0x3FF0000000000000)
  %v40 = fsub <4 x float> %v39, %v38
  %v41 = fsub <4 x float> %v39, %v40
  %v42 = fsub <4 x float> %v38, %v41
  %v43 = fsub <4 x float> splat (float 0x3FF0000000000000), %v40
  %v44 = fadd <4 x float> %v42, %v43
  %v45 = fdiv <4 x float> %v38, %v39
  %v46 = fmul <4 x float> %v45, %v44
  %v47 = fneg <4 x float> %v46
  %v48 = fsub <4 x float> splat (float 0x3FF0000000000000), %v45
  %v49 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v47, <4 x float> %v48, <4 x float> %v45)
  %v50 = call <4 x float> @llvm.copysign.v4f32(<4 x float> %v49, <4 x float> %v17)
  %v51 = getelementptr i32, ptr %v5, i64 %v15
  store <4 x float> %v50, ptr %v51, align 4
  %v52 = add nsw i64 %v15, 4
  %v53 = icmp slt i64 %v52, %v7
  br i1 %v53, label %loop12, label %after13
after13:
  %v54 = add nsw i64 %v11, 1
  %v55 = icmp slt i64 %v54, %end
  br i1 %v55, label %loop8, label %after9
after9:
  ret void
}

declare <4 x float> @llvm.fabs.v4f32(<4 x float>)

declare <4 x float> @llvm.roundeven.v4f32(<4 x float>)

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

declare <4 x float> @llvm.copysign.v4f32(<4 x float>, <4 x float>)

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="128" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
