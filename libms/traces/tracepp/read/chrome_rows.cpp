// Implements what chrome_events.h declares of categories, args and devices, and its hashes.
#include <algorithm>
#include <array>
#include <utility>

#include "tracepp/read/chrome_events.h"
#include "tracepp/read/op_shapes.h"

namespace ms::tracepp {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

// Returns the array behind a key of such an object; empty: there is none.
std::string_view array_behind(std::string_view object, std::string_view key) {
  std::size_t at = object.find(key);
  if (at == std::string_view::npos) return {};
  at = object.find_first_not_of(" :", at + key.size());
  if (at == std::string_view::npos || object[at] != '[') return {};
  int depth = 0;
  bool quoted = false;
  for (std::size_t end = at; end < object.size(); ++end) {
    if (object[end] == '"') quoted = !quoted;
    if (quoted) continue;
    if (object[end] == '[') ++depth;
    if (object[end] == ']' && --depth == 0) return object.substr(at, end + 1 - at);
  }
  return {};
}

}  // namespace

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

std::string_view digits_behind(std::string_view object, std::string_view key) {
  std::size_t at = object.find(key);
  if (at == std::string_view::npos) return {};
  at = object.find_first_not_of(" :\"", at + key.size());
  return at == std::string_view::npos ? std::string_view()
                                      : object.substr(at, object.find_first_not_of("0123456789", at) - at);
}

std::string shape_of(std::string_view args, bool is_copy) {
  if (is_copy) return std::string(digits_behind(args, "\"bytes\""));
  std::string shape;
  for (const std::string_view key : {"\"Input Dims\"", "\"Input type\"", "\"Concrete Inputs\""}) {
    const std::string_view list = array_behind(args, key);
    if (list.empty() && shape.empty()) return {};
    shape += list;
    shape += '\n';
  }
  return shape;
}

std::vector<std::string> device_names(std::string_view list) {
  constexpr std::string_view kKey = "\"name\"";
  constexpr std::size_t kMost = 1024;
  std::vector<std::string> names;
  for (std::size_t at = list.find(kKey); at != std::string_view::npos && names.size() < kMost;
       at = list.find(kKey, at)) {
    at = list.find('"', at + kKey.size());
    const std::size_t end = at == std::string_view::npos ? at : list.find('"', at + 1);
    if (end == std::string_view::npos) break;
    names.push_back(unescaped(list.substr(at, end + 1 - at)));
    at = end + 1;
  }
  return names;
}

std::string device_name(const std::vector<std::string>& names, std::string_view number) {
  if (names.empty()) return {};
  if (std::ranges::count(names, names.front()) == std::ssize(names)) return names.front();
  const auto at = parse_int(number);
  return at && *at >= 0 && *at < std::ssize(names) ? names[static_cast<std::size_t>(*at)] : std::string();
}

void add_work(EventInfo& made, std::string_view op, std::string_view shape, Strings& strings) {
  if (made.origin == Origin::copy) {
    made.size_bytes = parse_int(shape).value_or(-1);
    return;
  }
  const std::size_t types = std::min(shape.size(), shape.find('\n') + 1);
  const std::size_t values = std::min(shape.size(), shape.find('\n', types) + 1);
  const auto work = op_work(op, shape.substr(0, types), shape.substr(types, values - types), shape.substr(values));
  if (!work) return;
  made.flops = work->flops;
  made.size_bytes = work->bytes;
  made.type = strings.id(work->type);
}

std::size_t ChromeEvents::InfoHash::operator()(const ChromeInfo& info) const {
  // Mixes the fields one after the other: names and threads that rise together must not cancel out.
  std::uint64_t hash = mix(0, std::uint64_t{info.name} << 32 | info.category);
  hash = mix(hash, std::uint64_t{info.thread} << 32 | static_cast<std::uint32_t>(info.comm));
  return mix(hash, std::uint64_t{info.shape} << 16 | static_cast<std::uint16_t>(info.chunk));
}

std::size_t ChromeEvents::CommHash::operator()(const ChromeComm& comm) const {
  std::uint64_t hash = mix(0, std::uint64_t{comm.collective} << 32 | comm.group);
  hash = mix(hash, comm.description);
  hash = mix(hash, std::uint64_t{comm.ranks} << 32 | comm.type);
  hash = mix(hash, static_cast<std::uint64_t>(comm.elements));
  return mix(hash,
             std::uint64_t{static_cast<std::uint32_t>(comm.source)} << 32 | static_cast<std::uint32_t>(comm.target));
}

}  // namespace ms::tracepp
