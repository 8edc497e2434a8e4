#include "net/measure/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace ms::net {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestWarning = 240;
// The characters of host names. NCCL cuts a name at its first dot.
constexpr std::string_view kHostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
// Elements of topologies and of graphs.
constexpr std::array<std::string_view, 9> kElements{"system", "cpu", "pci",    "gpu",  "nvlink",
                                                    "nic",    "net", "graphs", "graph"};
constexpr std::string_view kInfoMark = "NCCL INFO ";
constexpr std::string_view kWarnMark = "NCCL WARN ";

std::string name_in(std::string_view text, std::size_t most = kLongestName) {
  return std::string(text.substr(0, most));
}

// The text behind `mark`; nullopt: it is not in there.
std::optional<std::string_view> behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  return at == std::string_view::npos ? std::nullopt : std::optional(text.substr(at + mark.size()));
}
std::string_view word_of(std::string_view text) { return text.substr(0, text.find_first_of(" ,")); }
// A number that is not negative at the beginning of the text, else nullopt.
template <class T = int>
std::optional<T> number_of(std::string_view text, int base = 10) {
  const auto value = leading_number<T>(text, base);
  return value >= T{0} ? value : std::nullopt;
}

struct Writer {
  std::string_view host, thread;  // thread: "host:process:thread"
  std::int64_t process = 0;
  std::string_view process_name() const { return thread.substr(0, thread.rfind(':')); }  // "host:process"
};
// Who wrote a line: the last word "host:process:thread" of what is before "NCCL INFO". It may follow a time or a
// launcher's label, with a space between them or without: "[1,3]<stdout>:node:7:8", "[default3]:node:7:8".
std::optional<Writer> writer_in(std::string_view prefix) {
  std::optional<Writer> writer;
  while (!prefix.empty()) {
    const std::string_view word = prefix.substr(0, prefix.find(' '));
    prefix.remove_prefix(std::min(prefix.size(), word.size() + 1));
    const std::size_t last = word.rfind(':');
    if (last == std::string_view::npos || last == 0) continue;
    const std::size_t middle = word.rfind(':', last - 1);
    if (middle == std::string_view::npos || middle == 0) continue;
    if (word.find_first_not_of("0123456789", last + 1) != std::string_view::npos) continue;
    const std::size_t first = word.substr(0, middle).find_last_not_of(kHostCharacters) + 1;  // npos + 1 is 0
    if (first == middle) continue;
    if (const auto process = number_of<std::int64_t>(word.substr(middle + 1)))
      writer = {.host = word.substr(first, middle - first), .thread = word.substr(first), .process = *process};
  }
  return writer;
}

// The number behind `mark`; nullopt: there is none.
std::optional<int> number_behind(std::string_view text, std::string_view mark) {
  return number_of(behind(text, mark).value_or(""));
}

// The PCI bus id of "GPU/7000" or, of later versions, of "GPU/0-7000": behind the number of the system.
std::optional<std::int64_t> gpu_in(std::string_view text) {
  const auto gpu = behind(text, " - GPU/");
  if (!gpu) return std::nullopt;
  const std::string_view id = word_of(*gpu);
  return number_of<std::int64_t>(id.substr(id.rfind('-') + 1), 16);
}

struct Line {
  Writer writer;
  bool warns = false;
  std::string_view text;
};
// Returns the line of NCCL's that a text is; nullopt: it is none. `kept`: for the text without colours.
std::optional<Line> nccl_line(std::string_view coloured, std::string& kept) {
  const std::string_view line = without_colours(coloured, kept);
  std::size_t at = line.find(kInfoMark);
  const bool warns = at == std::string_view::npos;
  if (warns) at = line.find(kWarnMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<Writer> writer = writer_in(line.substr(0, at));
  if (!writer) return std::nullopt;
  return Line{*writer, warns, trim(line.substr(at + kInfoMark.size()))};
}

// Calls `take` with the lines of a log that NCCL wrote, with the beginning of one that is too long.
template <class Take>
void each_line(std::istream& in, Take&& take) {
  std::string line(NcclLog::kLongestLine, '\0'), plain;
  bool goes_on = false;  // what comes next is the rest of a line that was too long
  while (in) {
    in.getline(line.data(), static_cast<std::streamsize>(line.size()));
    const auto length = static_cast<std::size_t>(in.gcount());
    const bool is_cut = in.fail() && length > 0 && !in.eof();
    if (is_cut) in.clear();
    const std::string_view text(line.data(), std::min(length, std::string_view(line.data()).size()));
    const std::optional<Line> found = goes_on ? std::nullopt : nccl_line(text, plain);
    if (found) take(*found);
    goes_on = is_cut;
  }
}

// Whether a list of adapters is whole: NCCL writes the interface of its sockets behind it. A line may have been cut.
bool is_whole_list(std::string_view text) { return text.find("; OOB ") != std::string_view::npos; }

// Whether a line was cut inside the word that says that GPUDirect RDMA is used.
bool is_cut_way(std::string_view via) {
  constexpr std::string_view kDirect = "GDRDMA";
  const std::string_view last = via.substr(via.rfind('/') + 1);
  return via.starts_with("NET/") && (last.empty() || (last.size() < kDirect.size() && kDirect.starts_with(last)));
}

// "Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ...", "Using [0]eth0:10.0.0.1<0> [1]..."
std::vector<std::string> devices_in(std::string_view text) {
  std::vector<std::string> adapters;
  for (const std::string& word : split(text.substr(0, text.find(';')), ' ')) {
    const std::size_t bracket = word.find(']');
    if (word.starts_with('[') && bracket + 1 < word.size()) adapters.push_back(name_in(word.substr(bracket + 1)));
  }
  return adapters;
}

}  // namespace

std::string way_of(std::string_view via) {
  const std::vector<std::string> parts = split(via.substr(0, kLongestName * 2), '/');
  if (parts.empty()) return {};
  std::string way = name_in(parts[0]);
  if (parts.size() > 1 && (way == "P2P" || way == "NET")) way += "/" + name_in(parts[1]);
  if (std::ranges::any_of(parts, [](const std::string& part) { return part.starts_with("GDRDMA"); })) way += "/GDRDMA";
  return way;
}

std::string nccl_warning_of(std::string_view text) {
  constexpr std::array<std::string_view, 8> kMeaningful{"rank", "status", "error",  "err",
                                                        "code", "dev",    "device", "GPU"};
  constexpr std::string_view kDigits = "0123456789";
  std::string warning, before;
  for (const std::string& word : split(text.substr(0, kLongestWarning), ' ')) {
    const std::size_t port = word.find('<'), value = word.find('='), end = word.find_last_not_of(",.;:)") + 1;
    const std::string_view body = std::string_view(word).substr(0, end);
    std::string said = word;
    if (port != std::string::npos && port > 0 && word.find_first_not_of(kDigits, port + 1) == word.find('>')) {
      said = word.substr(0, port);
    } else if (value != std::string::npos && value + 1 < word.size()) {
      const bool is_kept = std::ranges::find(kMeaningful, body.substr(0, value)) != kMeaningful.end();
      if (!is_kept && word.find_first_of(kDigits, value) != std::string::npos) said = word.substr(0, value + 1) + "*";
    } else if (word.starts_with("0x") || word.find("::") != std::string::npos ||
               (body.size() > 2 && body.find_first_not_of(kDigits) == std::string_view::npos &&
                std::ranges::find(kMeaningful, before) == kMeaningful.end())) {
      said = "*";
    }
    warning += (warning.empty() ? "" : " ") + said;
    before = word;
  }
  return warning;
}

std::optional<bool> NcclHost::are_joined(int nvml, int other_nvml) const {
  const auto gpu = gpus.find(nvml), other = gpus.find(other_nvml);
  if (gpu == gpus.end() || other == gpus.end() || gpu == other) return std::nullopt;
  const auto from = links.find(gpu->second), to = links.find(other->second);
  if (from == links.end() || to == links.end()) return std::nullopt;
  return from->second.to.contains(to->first) || (from->second.to_switch && to->second.to_switch);
}

template <class Map, class Key>
auto* NcclLog::kept(Map& map, const Key& key, std::size_t most) {
  const auto found = map.find(key);
  if (found != map.end()) return &found->second;
  is_cut_ = is_cut_ || map.size() >= most;
  return map.size() >= most ? nullptr : &map[typename Map::key_type(key)];
}

std::int64_t NcclLog::read(std::istream& in, const std::string& file) {
  if (in.peek() == '<') {
    std::string text(kLargestXml, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    is_cut_ = is_cut_ || !in.eof();
    text.resize(static_cast<std::size_t>(in.gcount()));
    in.setstate(std::ios::eofbit);
    return read_xml(text, file);
  }
  std::int64_t lines = 0;
  each_line(in, [&](const Line& line) {
    ++lines;
    if (!attempts_.is_earlier(line.writer.process_name(), line.text))
      take(line.writer.host, line.writer.process, line.writer.thread, line.warns, line.text);
  });
  return lines;
}

std::int64_t NcclLog::find_attempts(std::istream& in) {
  std::int64_t lines = 0;
  if (in.peek() == '<') in.setstate(std::ios::eofbit);  // a topology is of no attempt
  attempts_.begin_log();
  each_line(in, [&](const Line& line) {
    ++lines;
    attempts_.see(line.writer.host, line.writer.process_name(), line.text);
  });
  return lines;
}

std::int64_t NcclLog::read_xml(std::string_view text, const std::string& file) {
  std::int64_t elements = 0;
  std::string gpu;  // that encloses what is read
  NcclHost* host = nullptr;
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::string_view element = text.substr(at + 1, text.find('>', at) - at - 1);
    const std::string_view what = word_of(element);
    if (std::ranges::find(kElements, what) == kElements.end()) continue;
    if (host == nullptr) host = kept(hosts_, name_in(file, kLongestName * 4), kMostHosts);
    if (host == nullptr) return elements;
    ++elements;
    has_graphs_ = true;
    const auto attribute = [&](std::string_view name) {
      const auto value = behind(element, fmt::format(" {}=\"", name));
      return value ? value->substr(0, value->find('"')) : std::string_view();
    };
    if (what == "gpu" && !attribute("sm").empty()) {  // of a topology: graphs have GPUs without it
      gpu = name_in(attribute("dev"));
      kept(host->nvlinks, gpu, kMostOfAHost);
    } else if (what == "nvlink") {
      host->has_nvlink = true;
      if (std::int64_t* links = kept(host->nvlinks, gpu, kMostOfAHost))
        *links += number_of(attribute("count")).value_or(0);
    } else if (what == "net" && !attribute("name").empty()) {
      const std::string name = name_in(attribute("name"));
      if (host->adapters.size() < kMostOfAHost) host->adapters.insert(name);
      if (bool* direct = kept(host->direct, name, kMostOfAHost)) *direct = attribute("gdr") == "1";
    } else if (what == "graph" && attribute("pattern") == "4") {
      host->dumped_rings = {.channels = number_of(attribute("nchannels")).value_or(0),
                            .intra = name_in(attribute("typeintra")),
                            .inter = name_in(attribute("typeinter"))};
    }
  }
  return elements;
}

void NcclLog::take(std::string_view name, std::int64_t process, std::string_view thread_name, bool warns,
                   std::string_view text) {
  NcclHost* host = kept(hosts_, name_in(name, kLongestName * 4), kMostHosts);
  if (host == nullptr) return;
  if (host->processes.size() < kMostOfAHost) host->processes.insert(process);
  if (warns) {
    if (std::int64_t* times = kept(host->warnings, nccl_warning_of(text), kMostOfAHost)) ++*times;
  } else if (Thread* thread = kept(threads_, std::string(thread_name), kMostHosts * 8)) {
    choice(*host, *thread, std::string(thread_name.substr(0, thread_name.rfind(':'))), text);
  }
}

// "comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 7000 commId 0xfeed - Init START"; a communicator that is split
// off another has "parent 0x44 splitCount 1 color 3 key 0" (later: childCount) instead of an id.
void NcclLog::opens(NcclHost& host, Thread& thread, const std::string& process, std::string_view text) {
  const auto address_of = [&](std::string_view mark) {
    return fmt::format("{} {}", process, name_in(word_of(behind(text, mark).value_or(""))));
  };
  thread = {.comm = "", .ranks = number_behind(text, " nranks ").value_or(0)};
  const auto id = behind(text, " commId ");
  const auto child = number_behind(text, "Count "), color = number_behind(text, " color ");
  if (id) {
    thread.comm = name_in(word_of(*id));
  } else if (const auto parent = comms_.find(address_of(" parent ")); parent != comms_.end() && child && color) {
    // NCCL makes a child's id of these three as well.
    const std::string& of = parent->second;
    if (!of.empty() && of.size() < kLongestWarning) thread.comm = fmt::format("{}/{}/{}", of, *child, *color);
  }
  if (std::string* comm = kept(comms_, address_of("comm "), kMostHosts * 8)) *comm = thread.comm;
  const auto rank = number_behind(text, " rank ");
  if (NcclRanks* ranks = id && rank ? kept(ranks_, thread.comm, kMostHosts) : nullptr; ranks != nullptr) {
    ranks->all = std::max(ranks->all, thread.ranks);
    if (ranks->seen.size() < kMostHosts * 8) ranks->seen.insert(*rank);
  }
  const auto nvml = number_behind(text, " nvmlDev ");
  const auto bus = number_of<std::int64_t>(behind(text, " busId ").value_or(""), 16);
  if (!nvml || !bus) return;
  if (std::int64_t* gpu = kept(host.gpus, *nvml, kMostOfAHost))
    *gpu = *gpu == 0 || *gpu == *bus ? *bus : NcclHost::kSeveral;
}

// "Channel 00/0 : 0[0] -> 8[1] [send] via NET/IB/0": in brackets the GPUs' NVML numbers, each on its own host.
void NcclLog::connection(NcclHost& host, std::string_view text, std::string_view via) {
  has_ways_ = true;
  const std::string way = way_of(via);
  const bool receives = text.find("[receive]") != std::string_view::npos;
  if (std::int64_t* connections = kept(receives ? host.receives : host.ways, way, kMostOfAHost)) ++*connections;
  if (const auto device = behind(via, "NET/IB/")) {
    std::set<std::string>& devices = way.ends_with("/GDRDMA") ? host.direct_over : host.staged;
    if (devices.size() < kMostOfAHost) devices.insert(name_in(device->substr(0, device->find_first_of("/("))));
  }
  const auto from = number_behind(text, "["), to = number_behind(behind(text, " -> ").value_or(""), "[");
  if (way != "SHM" || !from || !to) return;
  if (std::int64_t* connections = kept(host.shared, std::pair(*from, *to), kMostOfAHost)) ++*connections;
}

// Lines of a topology: "CPU/0 (1/1/2)", below it "+ PCI[24.0] - GPU/7000 (0)", below that "+ NVL[240.0] - NVS/0".
void NcclLog::topology(NcclHost& host, Thread& thread, std::string_view text) {
  const std::optional<std::int64_t> gpu = gpu_in(text);
  if (!text.starts_with("+ NVL[")) {
    if (text.starts_with("+ PCI[") || text.starts_with("CPU/")) thread.gpu = gpu;
    if (thread.gpu) kept(host.links, *thread.gpu, kMostOfAHost);
    return;
  }
  has_graphs_ = true;
  host.has_nvlink = true;
  NcclNvlinks* links = thread.gpu ? kept(host.links, *thread.gpu, kMostOfAHost) : nullptr;
  if (links == nullptr) return;
  if (behind(text, " - NVS")) links->to_switch = true;
  if (gpu && links->to.size() < kMostOfAHost) links->to.insert(*gpu);
}

void NcclLog::choice(NcclHost& host, Thread& thread, const std::string& process, std::string_view text) {
  if (text.ends_with("Init START")) {
    opens(host, thread, process, text);
  } else if (behind(text, ": opCount ")) {
    const auto comm = comms_.find(fmt::format("{} {}", process, name_in(word_of(behind(text, " comm ").value_or("")))));
    calls_.take(process, comm == comms_.end() ? std::string_view() : comm->second, text);
  } else if (const auto via = behind(text, " via "); via && text.starts_with("Channel ")) {
    if (!is_cut_way(*via)) connection(host, text, *via);
  } else if (text.starts_with("Pattern 4,")) {  // NCCL_TOPO_PATTERN_RING
    has_graphs_ = true;
    const std::string_view types = word_of(behind(text, ", type ").value_or(""));
    NcclRings rings{
        .channels = number_of(behind(text, "nChannels ").value_or("")).value_or(0),
        .intra = name_in(types.substr(0, types.find('/'))),
        .inter = types.find('/') == std::string_view::npos ? "" : name_in(types.substr(types.find('/') + 1))};
    NcclRings* least = thread.comm.empty() ? nullptr : kept(host.rings, thread.comm, kMostOfAHost);
    if (least != nullptr && (least->channels == 0 || rings < *least)) *least = std::move(rings);
  } else if (text.find(" coll channels, ") != std::string_view::npos) {
    const int channels = number_of(text).value_or(0);
    if (thread.ranks > host.ranks || (thread.ranks == host.ranks && channels < host.channels)) {
      host.ranks = thread.ranks;
      host.channels = channels;
    }
  } else if (text.starts_with("Using network ")) {
    if (host.networks.size() < kMostOfAHost) host.networks.insert(name_in(text.substr(14)));
  } else if (const auto used = behind(text, "NET/IB : Using "); used && is_whole_list(*used)) {
    for (std::string& adapter : devices_in(*used))
      if (host.adapters.size() < kMostOfAHost) host.adapters.insert(std::move(adapter));
  } else if (const auto interfaces = behind(text, "NET/Socket : Using "); interfaces) {
    for (const std::string& interface : devices_in(*interfaces))
      if (host.interfaces.size() < kMostOfAHost) host.interfaces.insert(interface.substr(0, interface.find('<')));
  } else if (text.starts_with("NET/IB : No device found")) {
    host.found_no_adapter = true;
  } else if (text.starts_with("+ ") || text.starts_with("CPU/")) {
    topology(host, thread, text);
  } else if (text.starts_with("NVLS multicast support is ")) {
    (behind(text, " is not available") ? host.lacks_multicast : host.has_multicast) = true;
  } else if (const auto value = behind(text, " set by environment to "); value && text.starts_with("NCCL_")) {
    if (std::string* setting = kept(host.settings, name_in(word_of(text)), kMostOfAHost)) {
      *setting = name_in(*value);
      if (setting->ends_with('.')) setting->pop_back();
    }
  }
}

}  // namespace ms::net
