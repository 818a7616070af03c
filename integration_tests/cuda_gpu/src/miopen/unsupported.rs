//! Functions that MIOpen's clients look up and the stand-in does not have: each answers that it is not implemented, so that the engine
//! searches, fuses and records nothing by MIOpen.

use hipdnn_sdk_bindings::miopen::miopenStatus_t;

/// Defines functions that look at none of their arguments: by the C ABI of these systems the caller removes them.
macro_rules! unsupported {
    ($($name:ident,)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> miopenStatus_t {
            miopenStatus_t::miopenStatusNotImplemented
        }
    )*};
}

unsupported! {
    miopenSetAllocator, miopenGetKernelTime, miopenEnableProfiling, miopenSetNdTensorDescriptorWithLayout,
    miopenSet4dTensorDescriptorEx, miopenGet4dTensorDescriptor, miopenSetTensorDescriptor,
    miopenGetTensorDescriptorSize, miopenGetTensorDescriptor, miopenCreateSeqTensorDescriptor,
    miopenDestroySeqTensorDescriptor, miopenOpTensor, miopenSetTensor, miopenScaleTensor, miopenGetTensorNumBytes,
    miopenTransformTensor, miopenInitConvolutionDescriptor, miopenGetConvolutionSpatialDim,
    miopenGetConvolutionDescriptor, miopenGetConvolutionNdDescriptor, miopenSetTransposeConvOutputPadding,
    miopenSetTransposeConvNdOutputPadding, miopenGetConvolutionForwardOutputDim,
    miopenGetConvolutionNdForwardOutputDim, miopenSetConvolutionFindMode, miopenGetConvolutionFindMode,
    miopenConvolutionForwardGetWorkSpaceSize, miopenFindConvolutionForwardAlgorithm, miopenConvolutionForward,
    miopenConvolutionForwardBias, miopenConvolutionBackwardDataGetWorkSpaceSize,
    miopenFindConvolutionBackwardDataAlgorithm, miopenConvolutionBackwardData,
    miopenConvolutionBackwardWeightsGetWorkSpaceSize, miopenFindConvolutionBackwardWeightsAlgorithm,
    miopenConvolutionBackwardWeights, miopenConvolutionBackwardBias, miopenCreatePoolingDescriptor,
    miopenSetPoolingIndexType, miopenGetPoolingIndexType, miopenSetPoolingWorkSpaceIndexMode,
    miopenGetPoolingWorkSpaceIndexMode, miopenSet2dPoolingDescriptor, miopenGet2dPoolingDescriptor,
    miopenGetPoolingForwardOutputDim, miopenSetNdPoolingDescriptor, miopenGetNdPoolingDescriptor,
    miopenGetPoolingNdForwardOutputDim, miopenPoolingGetWorkSpaceSize, miopenPoolingGetWorkSpaceSizeV2,
    miopenPoolingForward, miopenPoolingBackward, miopenDestroyPoolingDescriptor, miopenCreateLRNDescriptor,
    miopenSetLRNDescriptor, miopenGetLRNDescriptor, miopenLRNGetWorkSpaceSize, miopenLRNForward, miopenLRNBackward,
    miopenDestroyLRNDescriptor, miopenDeriveBNTensorDescriptor, miopenBatchNormalizationForwardTraining,
    miopenBatchNormalizationForwardTraining_V2, miopenBatchNormalizationForwardInference,
    miopenBatchNormalizationForwardInference_V2, miopenBatchNormalizationBackward,
    miopenBatchNormalizationBackward_V2, miopenCreateActivationDescriptor, miopenSetActivationDescriptor,
    miopenGetActivationDescriptor, miopenActivationForward, miopenActivationBackward,
    miopenDestroyActivationDescriptor, miopenSoftmaxForward, miopenSoftmaxBackward, miopenSoftmaxForward_V2,
    miopenSoftmaxBackward_V2, miopenCreateFusionPlan, miopenDestroyFusionPlan, miopenCompileFusionPlan,
    miopenFusionPlanGetOp, miopenFusionPlanGetWorkSpaceSize, miopenFusionPlanConvolutionGetAlgo,
    miopenFusionPlanConvolutionSetAlgo, miopenCreateOpConvForward, miopenCreateOpActivationForward,
    miopenCreateOpActivationBackward, miopenCreateOpBiasForward, miopenCreateOpBatchNormInference,
    miopenCreateOpBatchNormForward, miopenCreateOpBatchNormBackward, miopenCreateOperatorArgs,
    miopenDestroyOperatorArgs, miopenSetOpArgsConvForward, miopenSetOpArgsActivForward, miopenSetOpArgsActivBackward,
    miopenSetOpArgsBatchNormInference, miopenSetOpArgsBatchNormForward, miopenSetOpArgsBatchNormBackward,
    miopenSetOpArgsBiasForward, miopenExecuteFusionPlan, miopenConvolutionBiasActivationForward,
    miopenCreateRNNDescriptor, miopenGetRNNDescriptor, miopenGetRNNDescriptor_V2, miopenDestroyRNNDescriptor,
    miopenSetRNNDescriptor, miopenSetRNNDescriptor_V2, miopenSetRNNDataSeqTensorDescriptor,
    miopenGetRNNDataSeqTensorDescriptor, miopenGetRNNWorkspaceSize, miopenGetRNNTrainingReserveSize,
    miopenGetRNNTempSpaceSizes, miopenGetRNNParamsSize, miopenGetRNNParamsDescriptor, miopenGetRNNInputTensorSize,
    miopenGetRNNHiddenTensorSize, miopenGetRNNLayerParamSize, miopenGetRNNLayerBiasSize, miopenGetRNNLayerParam,
    miopenGetRNNLayerBias, miopenGetRNNLayerParamOffset, miopenGetRNNLayerBiasOffset, miopenSetRNNLayerParam,
    miopenSetRNNLayerBias, miopenSetRNNPaddingMode, miopenGetRNNPaddingMode, miopenRNNForward,
    miopenRNNBackwardSeqData, miopenRNNBackwardWeightsSeqTensor, miopenRNNForwardTraining, miopenRNNBackwardData,
    miopenRNNBackwardWeights, miopenRNNForwardInference, miopenCreateCTCLossDescriptor, miopenGetCTCLossDescriptor,
    miopenDestroyCTCLossDescriptor, miopenSetCTCLossDescriptor, miopenGetCTCLossWorkspaceSize, miopenCTCLoss,
    miopenCreateDropoutDescriptor, miopenDestroyDropoutDescriptor, miopenDropoutGetReserveSpaceSize,
    miopenDropoutGetStatesSize, miopenGetDropoutDescriptor, miopenRestoreDropoutDescriptor,
    miopenSetDropoutDescriptor, miopenDropoutForward, miopenDropoutBackward, miopenCreateReduceTensorDescriptor,
    miopenDestroyReduceTensorDescriptor, miopenSetReduceTensorDescriptor, miopenGetReduceTensorDescriptor,
    miopenGetReductionIndicesSize, miopenGetReductionWorkspaceSize, miopenReduceTensor, miopenCreateConvProblem,
    miopenCreateMhaProblem, miopenCreateMhaDescriptor, miopenSetMhaDescriptor, miopenGetMhaDescriptor,
    miopenCreateSoftmaxDescriptor, miopenSetSoftmaxDescriptor, miopenGetSoftmaxDescriptor, miopenDestroyProblem,
    miopenSetProblemTensorDescriptor, miopenCreateFindOptions, miopenDestroyFindOptions, miopenSetFindOptionTuning,
    miopenSetFindOptionResultsOrder, miopenSetFindOptionWorkspaceLimit, miopenSetFindOptionPreallocatedWorkspace,
    miopenSetFindOptionPreallocatedTensor, miopenSetFindOptionAttachBinaries, miopenFindSolutions, miopenRunSolution,
    miopenDestroySolution, miopenLoadSolution, miopenSaveSolution, miopenGetSolutionSize,
    miopenGetSolutionWorkspaceSize, miopenGetSolutionTime, miopenGetSolutionSolverId,
}
