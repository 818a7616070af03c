# Tests of an installed tree, for `ctest --test-dir bin/hipdnn_rs`: the CPU engine through hipDNN's backend, without a device. A shell, since
# ctest tells this file no absolute path, and a relative HIPDNN_PLUGIN_DIR means another place.
add_test(hipdnn_rs_smoke_backend sh -c [[
  HIPDNN_PLUGIN_DIR="$PWD/../../lib/hipdnn_plugins/engines/libhipdnn_rs_plugin.so" \
  exec ./hipdnn_rs_smoke_backend "$PWD/../../lib/libhipdnn_backend.so" HIPDNN_RS_CPU_ENGINE]])
set_tests_properties(hipdnn_rs_smoke_backend PROPERTIES
  ENVIRONMENT "HIPDNN_RS_CPU_ENGINE=on;HIP_VISIBLE_DEVICES=-1"
  LABELS "quick;standard;comprehensive;full"
  TIMEOUT 120)
