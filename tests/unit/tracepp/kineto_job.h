// A hand-made trace of torch.profiler, of one rank, in microseconds: a main thread, a thread of autograd, streams.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "foreign_files.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {

class KinetoJob {
 public:
  explicit KinetoJob(int rank = 0, int world = 4) : rank_(rank), world_(world) {}
  KinetoJob& step(int number, double begin, double end) {
    return host("user_annotation", fmt::format("ProfilerStep#{}", number), begin, end);
  }
  KinetoJob& host(const std::string& category, const std::string& name, double begin, double end, int thread = 100) {
    return add(category, name, begin, end, 100, thread, "");
  }
  KinetoJob& op(const std::string& name, double begin, double end, int thread = 100) {
    return host("cpu_op", name, begin, end, thread);
  }
  KinetoJob& shaped(const std::string& name, double begin, double end, const std::string& dims) {
    return add("cpu_op", name, begin, end, 100, 100,
               fmt::format(R"("Input Dims":{},"Input type":["float","float"],"Concrete Inputs":["",""])", dims));
  }
  KinetoJob& python(const std::string& name, double begin, double end) {
    return host("python_function", name, begin, end);
  }
  KinetoJob& call(const std::string& name, double begin, double end, int correlation, int thread = 100) {
    return add("cuda_runtime", name, begin, end, 100, thread, fmt::format(R"("correlation":{})", correlation));
  }
  KinetoJob& kernel(const std::string& name, double begin, double end, int correlation, int stream = 7) {
    const std::string category = name.starts_with("Mem") ? (name[3] == 's' ? "gpu_memset" : "gpu_memcpy") : "kernel";
    return add(category, name, begin, end, 0, stream,
               fmt::format(R"("device":0,"stream":{},"correlation":{})", stream, correlation));
  }
  // A kernel and its launch, which takes 5 us.
  KinetoJob& launched(double launch, double begin, double end, int correlation, const std::string& name = "gemm") {
    return call("cudaLaunchKernel", launch, launch + 5, correlation).kernel(name, begin, end, correlation);
  }
  // An all-reduce over all ranks on a stream of its own, and its launch.
  KinetoJob& all_reduce(double launch, double begin, double end, int correlation, int sequence) {
    std::string ranks;
    for (int r = 0; r < world_; ++r) ranks += fmt::format("{}{}", r == 0 ? "" : ", ", r);
    call("cudaLaunchKernelExC", launch, launch + 5, correlation);
    return add("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, end, 0, 22,
               fmt::format(R"("stream":22,"correlation":{},"Collective name":"allreduce","In msg nelems":1048576,)"
                           R"("dtype":"Float","Group size":{},"Process Group Name":"0",)"
                           R"("Process Group Description":"default_pg","Process Group Ranks":"[{}]","Seq":{})",
                           correlation, world_, ranks, sequence));
  }
  std::string text() const {
    return fmt::format(R"({{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},)"
                       R"("traceEvents":[{}]}})",
                       rank_, world_, events_);
  }

 private:
  KinetoJob& add(const std::string& category, const std::string& name, double begin, double end, int pid, int tid,
                 const std::string& args) {
    events_ += fmt::format(R"({}{{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                           R"("args":{{{}}}}})",
                           events_.empty() ? "" : ",", category, name, pid, tid, begin, end - begin, args);
    return *this;
  }
  int rank_, world_;
  std::string events_;
};

inline RunTrace read_jobs(const std::vector<KinetoJob>& ranks) {
  const ForeignFiles files;
  for (std::size_t r = 0; r < ranks.size(); ++r) files.put(fmt::format("rank{}.json", r), ranks[r].text());
  return read_run({files.path()});
}

}  // namespace ms::tracepp
