# For the end of TheRock's ml-libs/CMakeLists.txt.
if(THEROCK_ENABLE_HIPDNN_RS)
  ##############################################################################
  # hipdnn-rs: hipDNN engine plugin and ONNX Runtime execution provider
  ##############################################################################

  # No compiler of HIP's: kernels are compiled where they run, and libraries are opened there. So one build serves all GPUs.
  therock_cmake_subproject_declare(hipdnn_rs
    DISABLE_AMDGPU_TARGETS
    EXTERNAL_SOURCE_DIR "${THEROCK_HIPDNN_RS_SOURCE_DIR}"
    CMAKE_LISTS_RELPATH "install/therock"
    BINARY_DIR "${CMAKE_CURRENT_BINARY_DIR}/hipdnn_rs"
    BACKGROUND_BUILD
    NO_MERGE_COMPILE_COMMANDS
    CMAKE_ARGS
      "-DHIPDNN_RS_BUILD_TESTING=${THEROCK_BUILD_TESTING}"
      "-DHIPDNN_RS_LIBRARIES_DIR=${THEROCK_HIPDNN_RS_LIBRARIES_DIR}"
    RUNTIME_DEPS
      hip-clr
      hipDNN
      MIOpen
  )
  therock_cmake_subproject_require_host_program(hipdnn_rs cargo)
  therock_cmake_subproject_glob_c_sources(hipdnn_rs
    SUBDIRS
      install
      integration_tests/c
  )
  therock_cmake_subproject_provide_package(hipdnn_rs hipdnn_rs lib/cmake/hipdnn_rs)
  therock_cmake_subproject_activate(hipdnn_rs)

  therock_provide_artifact(hipdnn-rs
    TARGET_NEUTRAL
    DESCRIPTOR artifact-hipdnn-rs.toml
    COMPONENTS
      dev
      doc
      lib
      run
      test
    SUBPROJECT_DEPS
      hipdnn_rs
  )
endif(THEROCK_ENABLE_HIPDNN_RS)
