# Versions before 1.0 promise compatibility within a minor version only.
set(PACKAGE_VERSION "@VERSION@")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" _hipdnn_rs_series "${PACKAGE_VERSION}")
string(REGEX MATCH "^[0-9]+(\\.[0-9]+)?" _hipdnn_rs_wanted "${PACKAGE_FIND_VERSION}")
if(NOT PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
elseif(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(_hipdnn_rs_wanted MATCHES "\\." AND NOT _hipdnn_rs_wanted STREQUAL _hipdnn_rs_series)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()

# The libraries are for 64-bit programs.
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION "${PACKAGE_VERSION} (64 bit)")
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
