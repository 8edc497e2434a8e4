// Checks every access of a kernel to memory, on the emulated GPU: kernels are compiled with -fsanitize=thread, and the
// functions that the compiler then calls are ours. Two accesses of different threads to the same byte, one of them a
// write, are a race unless a launch or a barrier of their block lies between them; shuffles order nothing, as on a GPU.
// A read must find what somebody wrote, and every access must lie within memory that was made for it. Blocks run one
// after the other, and their races are found all the same.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace ms::emulated {

// Memory of the GPU that kernels may access. Not zeroed: a kernel must write before it reads.
class Watched {
 public:
  explicit Watched(std::size_t bytes);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  std::byte* data() const { return data_.get(); }
  void set_written();  // the test has

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_;
};

// What is wrong with the launches since the last call, each once; and how many sectors of 32 bytes the requests of
// their warps moved, beside the fewest that hold the same bytes.
struct Checked {
  std::vector<std::string> problems;
  std::size_t accesses = 0, sectors = 0, least_sectors = 0;
};
Checked checked();

}  // namespace ms::emulated
