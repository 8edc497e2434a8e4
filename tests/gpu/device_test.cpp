// The CUDA device as a run opens it: without a GPU, the error says so and what to do.
#include <gtest/gtest.h>

#include "tensor/cuda_plugin.h"

namespace ms::tensor {
namespace {

TEST(CudaDevice, ComputesOrExplainsWhyNot) {
  try {
    const std::unique_ptr<Device> device = make_cuda_device(0);
    const auto stream = device->make_stream("test", StreamKind::compute);
    const auto memory = device->allocate(1 << 20, "test"), host = device->allocate_host(1 << 20, "test");
    const Tensor x{memory->data(), 256, 1024, 1024, DType::f32}, here{host->data(), 256, 1024, 1024, DType::f32};
    stream->submit(Fill{.x = x, .value = 3});
    stream->submit(Copy{.dst = here, .src = x});
    stream->synchronize();
    for (std::int64_t i = 0; i < here.numel(); ++i) ASSERT_EQ(here.as<float>()[i], 3);
    EXPECT_THROW(make_cuda_device(1000), Error);
  } catch (const Error& error) {
    if (error.kind() != "cuda.none") throw;
    EXPECT_EQ(error.blame(), Blame::node);
    EXPECT_NE(error.message().find("looking for GPUs"), std::string::npos) << error.message();
    GTEST_SKIP() << "needs a GPU: " << error.message();
  }
}

}  // namespace
}  // namespace ms::tensor
