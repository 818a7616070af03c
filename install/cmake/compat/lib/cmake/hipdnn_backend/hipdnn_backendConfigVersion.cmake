include("${CMAKE_CURRENT_LIST_DIR}/../../../version.cmake")
