#include "net/measure/nccl_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "base/text.h"

namespace ms::net {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestWarning = 160;
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
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value >= 0 ? std::optional(value) : std::nullopt;
}

struct Writer {
  std::string_view host, thread;  // thread: "host:process:thread"
  std::int64_t process = 0;
};
// Who wrote a line: the last word "host:process:thread" of what is before "NCCL INFO", which may begin with a time or
// with srun's label.
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
    if (const auto process = number_of<std::int64_t>(word.substr(middle + 1)))
      writer = {.host = word.substr(0, middle), .thread = word, .process = *process};
  }
  return writer;
}

// "Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ..."
std::vector<std::string> adapters_in(std::string_view text) {
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
  std::string line(kLongestLine, '\0');
  bool goes_on = false;  // what comes next is the rest of a line that was too long
  while (in) {
    in.getline(line.data(), static_cast<std::streamsize>(line.size()));
    const auto length = static_cast<std::size_t>(in.gcount());
    const bool is_cut = in.fail() && length > 0 && !in.eof();
    if (is_cut) in.clear();
    const std::string_view text(line.data(), std::min(length, std::string_view(line.data()).size()));
    if (!goes_on && take(text)) ++lines;
    goes_on = is_cut;
  }
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
      if (NcclRings* rings = kept(host->rings, std::string("dumped"), kMostOfAHost)) {
        *rings = {.channels = number_of(attribute("nchannels")).value_or(0),
                  .intra = name_in(attribute("typeintra")),
                  .inter = name_in(attribute("typeinter"))};
      }
    }
  }
  return elements;
}

bool NcclLog::take(std::string_view line) {
  std::size_t at = line.find(kInfoMark);
  const bool warns = at == std::string_view::npos;
  if (warns) at = line.find(kWarnMark);
  if (at == std::string_view::npos) return false;
  const std::optional<Writer> writer = writer_in(line.substr(0, at));
  if (!writer) return false;
  NcclHost* host = kept(hosts_, name_in(writer->host, kLongestName * 4), kMostHosts);
  if (host == nullptr) return true;
  if (host->processes.size() < kMostOfAHost) host->processes.insert(writer->process);
  const std::string_view text = trim(line.substr(at + kInfoMark.size()));
  if (warns) {
    if (std::int64_t* times = kept(host->warnings, name_in(text, kLongestWarning), kMostOfAHost)) ++*times;
  } else if (Thread* thread = kept(threads_, std::string(writer->thread), kMostHosts * 8)) {
    choice(*host, *thread, text);
  }
  return true;
}

void NcclLog::choice(NcclHost& host, Thread& thread, std::string_view text) {
  if (const auto id = behind(text, " commId "); id && text.ends_with("Init START")) {
    thread = {.comm = name_in(word_of(*id)), .ranks = number_of(behind(text, " nranks ").value_or("")).value_or(0)};
  } else if (const auto via = behind(text, " via "); via && text.starts_with("Channel ")) {
    has_ways_ = true;
    if (text.find("[receive]") != std::string_view::npos) return;  // whoever sends writes a line as well
    if (std::int64_t* connections = kept(host.ways, way_of(*via), kMostOfAHost)) ++*connections;
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
  } else if (const auto used = behind(text, "NET/IB : Using "); used) {
    for (const std::string& adapter : adapters_in(*used))
      if (host.adapters.size() < kMostOfAHost) host.adapters.insert(adapter);
  } else if (text.starts_with("NET/IB : No device found")) {
    host.found_no_adapter = true;
  } else if (text.find("+ NVL[") != std::string_view::npos) {
    has_graphs_ = true;
    host.has_nvlink = true;
  } else if (text.starts_with("NVLS multicast support is not available")) {
    host.lacks_multicast = true;
  } else if (const auto value = behind(text, " set by environment to "); value && text.starts_with("NCCL_")) {
    if (std::string* setting = kept(host.settings, name_in(word_of(text)), kMostOfAHost)) {
      *setting = name_in(*value);
      if (setting->ends_with('.')) setting->pop_back();
    }
  }
}

}  // namespace ms::net
