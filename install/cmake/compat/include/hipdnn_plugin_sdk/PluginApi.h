/* hipDNN's name of this header. */
#include <hipdnn_rs/hipdnn_plugin.h>
