# What the forwarders have in common.

# Looks for ROCm's package of a name in the version that was asked for, everywhere but here; hipdnn_rs_found_rocm says whether there
# is one. A macro, since that package sets variables for the project that asked.
macro(hipdnn_rs_find_rocm name)
  set(_hipdnn_rs_own "${CMAKE_CURRENT_LIST_DIR}")
  set(_hipdnn_rs_ignored "${CMAKE_IGNORE_PATH}")
  list(APPEND CMAKE_IGNORE_PATH "${_hipdnn_rs_own}")
  set(_hipdnn_rs_dir "${${name}_DIR}")
  unset(${name}_DIR)
  unset(${name}_DIR CACHE)
  find_package(${name} ${${name}_FIND_VERSION} CONFIG QUIET PATHS "${ROCM_PATH}" "$ENV{ROCM_PATH}" /opt/rocm)
  set(CMAKE_IGNORE_PATH "${_hipdnn_rs_ignored}")
  set(hipdnn_rs_found_rocm "${${name}_FOUND}")
  if(NOT hipdnn_rs_found_rocm)
    set(${name}_DIR "${_hipdnn_rs_dir}" CACHE PATH "The directory containing a CMake configuration file for ${name}." FORCE)
    set(${name}_FOUND TRUE)
  endif()
  unset(_hipdnn_rs_own)
  unset(_hipdnn_rs_ignored)
  unset(_hipdnn_rs_dir)
endmacro()

# Makes a target of hipDNN's name of one of hipdnn_rs.
function(hipdnn_rs_forward name target headers)
  if(TARGET ${name})
    return()
  endif()
  if(NOT TARGET ${target})
    set(${name}_FOUND FALSE PARENT_SCOPE)
    set(${name}_NOT_FOUND_MESSAGE "expected ${target}, which needs libhipdnn_backend.so in hipdnn-rs's prefix" PARENT_SCOPE)
    return()
  endif()
  add_library(${name} INTERFACE IMPORTED)
  set_target_properties(${name} PROPERTIES
    INTERFACE_LINK_LIBRARIES ${target}
    INTERFACE_INCLUDE_DIRECTORIES "${headers}")
endfunction()
