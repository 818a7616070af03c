# find_package(hipdnn_rs CONFIG [COMPONENTS plugin_sdk backend])
#
#   hipdnn_rs::plugin_sdk   headers of hipDNN's ABIs of engine plugins and of heuristics plugins
#   hipdnn_rs::backend      libhipdnn_backend.so of this prefix, ROCm's or hipdnn-rs's, and the headers of its ABI
#
#   HIPDNN_PLUGIN_ENGINE_SUBDIR                engine plugins below a directory of libraries
#   HIPDNN_INSTALL_PLUGIN_ENGINE_DIR           the same below an installation prefix: for install(... DESTINATION)
#   HIPDNN_RELATIVE_INSTALL_PLUGIN_ENGINE_DIR  its newer name
#   HIPDNN_PLUGIN_ENGINE_INSTALL_PATH          the absolute directory below the prefix of the project that asks
#   HIPDNN_FULL_INSTALL_PLUGIN_ENGINE_DIR      the absolute directory below this prefix, where its backend looks
#   HIPDNN_RS_INSTALL_PLUGIN_HEURISTICS_DIR    heuristics plugins below an installation prefix
#
# Nothing here names the prefix, so that it can be moved.

if(CMAKE_VERSION VERSION_LESS 3.16)
  set(hipdnn_rs_FOUND FALSE)
  set(hipdnn_rs_NOT_FOUND_MESSAGE "expected CMake 3.16 or newer, got ${CMAKE_VERSION}")
  return()
endif()

get_filename_component(_hipdnn_rs_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(HIPDNN_PLUGIN_ENGINE_SUBDIR "hipdnn_plugins/engines")
set(HIPDNN_INSTALL_PLUGIN_ENGINE_DIR "lib/${HIPDNN_PLUGIN_ENGINE_SUBDIR}")
set(HIPDNN_RELATIVE_INSTALL_PLUGIN_ENGINE_DIR "${HIPDNN_INSTALL_PLUGIN_ENGINE_DIR}")
set(HIPDNN_PLUGIN_ENGINE_INSTALL_PATH "${CMAKE_INSTALL_PREFIX}/${HIPDNN_INSTALL_PLUGIN_ENGINE_DIR}")
set(HIPDNN_RS_INSTALL_PLUGIN_HEURISTICS_DIR "lib/hipdnn_plugins/heuristics")
set(HIPDNN_FULL_INSTALL_PLUGIN_ENGINE_DIR "${_hipdnn_rs_prefix}/${HIPDNN_INSTALL_PLUGIN_ENGINE_DIR}")

if(NOT TARGET hipdnn_rs::plugin_sdk)
  add_library(hipdnn_rs::plugin_sdk INTERFACE IMPORTED)
  set_target_properties(hipdnn_rs::plugin_sdk PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_hipdnn_rs_prefix}/include")
endif()
set(hipdnn_rs_plugin_sdk_FOUND TRUE)

set(_hipdnn_rs_library "${_hipdnn_rs_prefix}/lib/libhipdnn_backend.so")
if(EXISTS "${_hipdnn_rs_library}")
  if(NOT TARGET hipdnn_rs::backend)
    add_library(hipdnn_rs::backend SHARED IMPORTED)
    # Without a soname a program would name the library by the path it was linked with.
    set_target_properties(hipdnn_rs::backend PROPERTIES
      IMPORTED_LOCATION "${_hipdnn_rs_library}"
      IMPORTED_NO_SONAME TRUE
      INTERFACE_INCLUDE_DIRECTORIES "${_hipdnn_rs_prefix}/include")
  endif()
  set(hipdnn_rs_backend_FOUND TRUE)
else()
  set(hipdnn_rs_backend_FOUND FALSE)
endif()

foreach(_hipdnn_rs_component IN LISTS hipdnn_rs_FIND_COMPONENTS)
  if(NOT hipdnn_rs_${_hipdnn_rs_component}_FOUND AND hipdnn_rs_FIND_REQUIRED_${_hipdnn_rs_component})
    set(hipdnn_rs_FOUND FALSE)
    if(_hipdnn_rs_component STREQUAL "backend")
      set(hipdnn_rs_NOT_FOUND_MESSAGE "expected ${_hipdnn_rs_library}, which ROCm's hipDNN or the component backend of hipdnn-rs installs, got no such file")
    else()
      set(hipdnn_rs_NOT_FOUND_MESSAGE "expected a component plugin_sdk or backend, got ${_hipdnn_rs_component}")
    endif()
  endif()
endforeach()

unset(_hipdnn_rs_prefix)
unset(_hipdnn_rs_library)
unset(_hipdnn_rs_component)
