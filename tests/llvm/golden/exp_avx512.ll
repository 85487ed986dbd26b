define dso_local void @"exp_f32_16"(ptr noalias %args, i64 %begin, i64 %end, ptr %context) #0 {
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
  %v11 = phi i64 [%begin, %entry], [%v36, %after13]
  %v14 = icmp slt i64 0, %v7
  br i1 %v14, label %loop12, label %after13
loop12:
  %v15 = phi i64 [0, %loop8], [%v34, %loop12]
  %v16 = getelementptr i32, ptr %v1, i64 %v15
  %v17 = load <16 x float>, ptr %v16, align 4
  %v18 = fcmp olt <16 x float> %v17, splat (float 0xC05A800000000000)
  %v19 = fcmp ogt <16 x float> %v17, splat (float 0x4057000000000000)
  %v20 = select <16 x i1> %v19, <16 x float> splat (float 0x4057000000000000), <16 x float> %v17
  %v21 = fmul <16 x float> %v20, splat (float 0x3FF7154760000000)
  %v22 = call <16 x float> @llvm.roundeven.v16f32(<16 x float> %v21)
  %v23 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> splat (float 0xBFE62E4000000000), <16 x float> %v20)
  %v24 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v22, <16 x float> splat (float 0xBEB7F7D1C0000000), <16 x float> %v23)
  %v25 = call <16 x float> @llvm.fma.v16f32(<16 x float> splat (float 0x3F56DB6F60000000), <16 x float> %v24, <16 x float> splat (float 0x3F8123CE00000000))
  %v26 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v25, <16 x float> %v24, <16 x float> splat (float 0x3FA55545A0000000))
  %v27 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v26, <16 x float> %v24, <16 x float> splat (float 0x3FC55548C0000000))
  %v28 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v27, <16 x float> %v24, <16 x float> splat (float 0x3FE0000000000000))
  %v29 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v28, <16 x float> %v24, <16 x float> splat (float 0x3FF0000000000000))
  %v30 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v29, <16 x float> %v24, <16 x float> splat (float 0x3FF0000000000000))
  %v31 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v30, <16 x float> %v22, <16 x float> zeroinitializer, i16 -1, i32 4)
  %v32 = select <16 x i1> %v18, <16 x float> splat (float 0x0000000000000000), <16 x float> %v31
  %v33 = getelementptr i32, ptr %v5, i64 %v15
  store <16 x float> %v32, ptr %v33, align 4
  %v34 = add nsw i64 %v15, 16
  %v35 = icmp slt i64 %v34, %v7
  br i1 %v35, label %loop12, label %after13
after13:
  %v36 = add nsw i64 %v11, 1
  %v37 = icmp slt i64 %v36, %end
  br i1 %v37, label %loop8, label %after9
after9:
  ret void
}

declare <16 x float> @llvm.roundeven.v16f32(<16 x float>)

declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)

declare <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float>, <16 x float>, <16 x float>, i16, i32)

attributes #0 = { nounwind "no-builtins" "no-trapping-math"="true" "prefer-vector-width"="512" "frame-pointer"="none" }

!0 = !{}
!1 = !{i32 1}
