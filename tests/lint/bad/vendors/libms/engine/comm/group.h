#include <cuda_runtime.h>
#include <oneapi/dnnl/dnnl.hpp>
