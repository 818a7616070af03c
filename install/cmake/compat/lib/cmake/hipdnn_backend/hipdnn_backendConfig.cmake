# Forwards hipDNN's package hipdnn_backend to hipdnn_rs, unless ROCm's is anywhere.

get_filename_component(_hipdnn_rs_compat "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
include("${_hipdnn_rs_compat}/forward.cmake")
hipdnn_rs_find_rocm(hipdnn_backend)
if(NOT hipdnn_rs_found_rocm)
  include("${_hipdnn_rs_compat}/../hipdnn_rsConfig.cmake")
  hipdnn_rs_forward(hipdnn_backend hipdnn_rs::backend "${_hipdnn_rs_compat}/include")
endif()
unset(_hipdnn_rs_compat)
unset(hipdnn_rs_found_rocm)
