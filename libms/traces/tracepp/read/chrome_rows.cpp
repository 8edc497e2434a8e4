// Implements has_correlation, origin_of, row_of, is_host_collective and is_host_operator of chrome_events.h.
#include <algorithm>
#include <array>
#include <utility>

#include "tracepp/read/chrome_events.h"

namespace ms::tracepp {

bool has_correlation(std::string_view category) {
  return category.ends_with("_runtime\"") || category.ends_with("_driver\"") || category == "\"kernel\"" ||
         category == "\"gpu_memcpy\"" || category == "\"gpu_memset\"";
}

Origin origin_of(std::string_view category) {
  static constexpr std::array<std::pair<std::string_view, Origin>, 11> kOrigins{
      {{"\"kernel\"", Origin::kernel},
       {"\"concurrent_kernel\"", Origin::kernel},
       {"\"Kernel\"", Origin::kernel},
       {"\"gpu_memcpy\"", Origin::copy},
       {"\"gpu_memset\"", Origin::copy},
       {"\"Memcpy\"", Origin::copy},
       {"\"Memset\"", Origin::copy},
       {"\"cuda_sync\"", Origin::stream_wait},
       {"\"cpu_op\"", Origin::op},
       {"\"user_annotation\"", Origin::annotation},
       {"\"python_function\"", Origin::python}}};
  const auto* const found = std::ranges::find(kOrigins, category, &std::pair<std::string_view, Origin>::first);
  if (found != kOrigins.end()) return found->second;
  return has_correlation(category) ? Origin::call : Origin::unknown;
}

EventRow row_of(const ChromeFile& file, const ChromeInfo& info) {
  const ChromeThread& thread = file.threads[info.thread];
  const EventRow row = row_of_category(unescaped(file.texts.text(info.category)));
  if (row != EventRow::unknown) return row;
  const auto process = file.processes.find(thread.pid);
  const EventRow by_process = row_of_process(process == file.processes.end() ? unescaped(thread.pid) : process->second);
  if (by_process != EventRow::unknown) return by_process;
  static constexpr std::array<std::string_view, 6> kDevices{"GPU", "XPU", "NPU", "MTIA", "HPU", "CUDA"};
  const auto label = file.labels.find(thread.pid);
  const bool is_device =
      thread.has_stream || (label != file.labels.end() && std::ranges::any_of(kDevices, [&](std::string_view device) {
                              return label->second.starts_with(device);
                            }));
  return is_device ? EventRow::unknown : EventRow::host;
}

bool is_host_collective(std::string_view name, std::string_view category) {
  static constexpr std::array<std::string_view, 3> kBackends{"\"gloo:", "\"mpi:", "\"ucc:"};
  return category == "\"user_annotation\"" &&
         std::ranges::any_of(kBackends, [&](std::string_view backend) { return name.starts_with(backend); });
}

bool is_host_operator(std::string_view name, EventRow row) {
  return row == EventRow::host_operator && !name.starts_with("\"c10d::");
}

}  // namespace ms::tracepp
