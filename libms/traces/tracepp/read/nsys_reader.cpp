#include "tracepp/read/nsys_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/number.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kPidUnit = 0x1000000;  // a process's number stands above its thread's

// "train_step 5", "Iteration #5", "iter[5]" -> the text before the number, and the number.
std::optional<std::pair<std::string, std::int32_t>> step_in(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest) return std::nullopt;
  while (!text.empty() && (text.back() == ']' || text.back() == ')')) text.remove_suffix(1);
  std::size_t at = text.size();
  while (at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9') --at;
  const auto number = whole_number<std::int32_t>(text.substr(at));
  if (!number) return std::nullopt;
  const std::string before = plain_name(text.substr(0, at));
  const bool is_step = before.ends_with("step") || before.ends_with("iteration") || before.ends_with("iter");
  return is_step ? std::optional(std::pair(before, *number)) : std::nullopt;
}

std::string token_made(std::string_view text) {
  std::string token = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') token += '\\';
    token += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return token + '"';
}

// The ranges that are the run's steps: of all texts that count up, the one with the longest ranges. "optimizer step 5"
// may lie inside "iteration 5".
std::string step_family(const NsysReport& report) {
  struct Family {
    std::int32_t first = 0;
    bool counts = false;
    std::int64_t ns = 0;
  };
  std::map<std::string, Family> families;
  for (const NsysEvent& event : report.events) {
    const auto text = report.strings.find(event.name);
    if (event.what != NsysEvent::What::range || text == report.strings.end()) continue;
    const auto step = step_in(text->second);
    if (!step) continue;
    const auto [family, is_new] = families.try_emplace(step->first, Family{.first = step->second});
    family->second.counts |= family->second.first != step->second;
    family->second.ns += event.end_ns - event.begin_ns;
  }
  std::string found;
  std::int64_t longest_ns = -1;
  for (const auto& [text, family] : families) {
    if (!family.counts || family.ns <= longest_ns) continue;
    found = text;
    longest_ns = family.ns;
  }
  return found;
}

struct Told {
  std::string name;
  std::string_view category;
};

Told told_by(NsysEvent::What what, std::string name, const std::string& steps) {
  switch (what) {
    case NsysEvent::What::kernel: return {std::move(name), "\"kernel\""};
    case NsysEvent::What::copy: return {std::move(name), "\"gpu_memcpy\""};
    case NsysEvent::What::set: return {"Memset (Device)", "\"gpu_memset\""};
    case NsysEvent::What::call: {
      const std::size_t version = name.rfind("_v");  // cudaLaunchKernel_v7000
      if (version != std::string::npos && name.find_first_not_of("0123456789", version + 2) == std::string::npos) {
        name.resize(version);
      }
      return {std::move(name), "\"cuda_runtime\""};
    }
    default: break;
  }
  if (const auto step = step_in(name); step && step->first == steps) {
    return {"ProfilerStep#" + std::to_string(step->second), "\"user_annotation\""};
  }
  for (const std::string_view mark : {", op_id = ", ", seq = "}) {
    const std::size_t at = name.find(mark);
    if (at == std::string::npos) continue;
    name.resize(at);
    return {std::move(name), "\"cpu_op\""};
  }
  return {std::move(name), name.starts_with("aten::") ? "\"cpu_op\"" : "\"user_annotation\""};
}

bool is_of_device(NsysEvent::What what) { return what < NsysEvent::What::call; }

}  // namespace

std::int64_t NsysReport::named(const std::string& text) {
  const auto [place, is_new] = own_.try_emplace(text, -1 - static_cast<std::int64_t>(own_.size()));
  if (is_new) strings[place->second] = text;
  return place->second;
}

std::string nsys_copy_name(std::int64_t kind, std::int64_t from, std::int64_t to) {
  static constexpr std::array<std::string_view, 11> kKinds{"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                           "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  static constexpr std::array<std::string_view, 7> kMemories{"Pageable", "Pinned", "Device", "Array",
                                                             "Managed",  "Device", "Managed"};
  const auto of = [](const auto& names, std::int64_t i) {
    return i >= 0 && i < std::ssize(names) ? names[static_cast<std::size_t>(i)] : std::string_view("Unknown");
  };
  std::string name = "Memcpy ";
  name += of(kKinds, kind);
  name += " (";
  name += of(kMemories, from);
  name += " -> ";
  name += of(kMemories, to);
  return name + ")";
}

bool is_nsys_json(std::string_view beginning, bool) {
  const auto has = [&](std::string_view part) { return beginning.find(part) != std::string_view::npos; };
  return beginning.starts_with('{') && !has("\"traceEvents\"") &&
         (has("\"CudaEvent\":") || has("\"TraceProcessEvent\":") || has("\"NvtxEvent\":") ||
          beginning.starts_with("{\"data\":[\"[Unknown]\""));
}

std::int64_t NsysReader::read(TextInput& input) {
  NsysReport report;
  JsonText text(input);
  JsonObjects objects(text, report.problems);
  NsysEvent event;
  std::string_view type, id;
  std::optional<std::string> value;
  bool is_known = false;
  const auto number = [](std::string_view token, std::int64_t otherwise) {
    return parse_int(token).value_or(otherwise);
  };
  const auto read_copy = [&](JsonValue& copy) {
    std::int64_t kind = 0, from = -1, to = -1;
    const bool sound = each_field(copy, [&](std::string_view key, JsonValue& field) {
      if (key == "copyKind") kind = number(token_of(field), 0);
      if (key == "srcKind") from = number(token_of(field), -1);
      if (key == "dstKind") to = number(token_of(field), -1);
      return true;
    });
    event.what = NsysEvent::What::copy;
    event.name = report.named(nsys_copy_name(kind, from, to));
    return sound;
  };
  const auto read_event = [&](std::string_view key, JsonValue& field) {
    is_known |= key == "kernel" || key == "memcpy" || key == "memset";
    if (key == "memset") event.what = NsysEvent::What::set;
    if (key == "memcpy") return read_copy(field);
    if (key == "kernel") {
      return each_field(field, [&](std::string_view of, JsonValue& name) {
        if (of == "demangledName") event.name = number(token_of(name), 0);
        return true;
      });
    }
    std::string_view token;
    if (!text_of(field, token)) return false;
    constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::min();
    if (key == "startNs" || key == "Timestamp") event.begin_ns = number(token, kNone);
    if (key == "endNs" || key == "EndTimestamp") event.end_ns = number(token, kNone);
    if (key == "correlationId") event.correlation = number(token, -1);
    if (key == "deviceId") event.device = number(token, 0);
    if (key == "streamId") event.stream = number(token, 0);
    if (key == "globalPid" || key == "globalTid" || key == "GlobalTid") event.thread = number(token, 0);
    if (key == "name" || key == "TextId") event.name = number(token, 0);
    if (key == "Text") event.name = report.named(unescaped(token));
    return true;
  };
  const auto read_strings = [&](JsonValue& array) {
    const bool are_first = report.strings.empty() || report.strings.begin()->first < 0;
    std::int64_t index = 0;
    return each_value(array, [&](JsonValue& element) {
      const std::string_view token = element.raw_json_token();
      std::string_view whole;
      if (!text_of(element, whole)) return false;
      if (are_first && token.starts_with('"')) report.strings.try_emplace(index, unescaped(whole));
      ++index;
      return true;
    });
  };
  const auto read_line = [&](JsonObject& object) {
    event = {};
    type = id = {};
    value.reset();
    is_known = false;
    const bool sound = each_field(object, [&](std::string_view key, JsonValue& field) {
      if (key == "data") return read_strings(field);
      event.what = key == "NvtxEvent"           ? NsysEvent::What::range
                   : key == "TraceProcessEvent" ? NsysEvent::What::call
                                                : event.what;
      is_known |= event.what >= NsysEvent::What::call;
      if (key == "CudaEvent" || key == "NvtxEvent" || key == "TraceProcessEvent") return each_field(field, read_event);
      std::string_view token;
      if (!text_of(field, token)) return false;
      if (key == "type") type = token;
      if (key == "id") id = token;
      if (key == "value") value = unescaped(token);
      return true;
    });
    if (!sound) return false;
    if (type == "\"String\"" && value) report.strings.try_emplace(number(id, 0), *value);
    // Calls of other libraries, markers, and ranges without an end lack these fields.
    if (event.what == NsysEvent::What::call && event.correlation <= 0) is_known = false;
    if (is_known && event.end_ns != 0) report.events.push_back(event);
    return true;
  };
  while (text.peek() != '\0') {
    const auto line = text.value();
    if (!line) {
      ++report.problems[!input.trouble().empty() ? input.trouble() : "file is cut off"];
      break;
    }
    if (line->empty()) {
      text.take();
      continue;
    }
    const std::span<char> span(const_cast<char*>(line->data()), line->size());  // of text's own window
    if (!objects.one(span, read_line)) ++report.problems["record that is no sound JSON object"];
  }
  add(report, input.path());
  return 0;
}

void NsysReader::add(NsysReport& report, const std::string& path) {
  using What = NsysEvent::What;
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  const bool is_one = std::ranges::any_of(
      report.events, [](const NsysEvent& event) { return is_of_device(event.what) && event.thread == 0; });
  const auto process_of = [&](const NsysEvent& event) { return is_one ? 0 : event.thread / kPidUnit; };
  std::map<std::int64_t, std::int64_t> device_of;  // by process
  for (const NsysEvent& event : report.events) {
    if (!is_of_device(event.what)) continue;
    const auto [place, is_new] = device_of.try_emplace(process_of(event), event.device);
    place->second = std::min(place->second, event.device);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> ranks;  // device, process
  for (const auto& [process, device] : device_of) ranks.emplace_back(device, process);
  std::ranges::sort(ranks);
  std::map<std::int64_t, std::size_t> rank_of;
  for (std::size_t r = 0; r < ranks.size(); ++r) rank_of[ranks[r].second] = r;

  struct Rank {
    ChromeFile file;
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> threads;  // by device, stream; by -1, thread
    std::map<std::array<std::int64_t, 3>, std::uint32_t> infos;              // by what, name, thread
  };
  std::vector<Rank> made(ranks.size());
  const std::string steps = step_family(report);
  for (const NsysEvent& event : report.events) {
    const auto known = rank_of.find(process_of(event));
    if (known == rank_of.end()) {
      ++report.problems["event of a process without work on a device"];
      continue;
    }
    if (std::max(std::abs(event.begin_ns / 2), std::abs(event.end_ns / 2)) > kMost / 2) {
      ++report.problems["time that is no number"];
      continue;
    }
    if (event.end_ns < event.begin_ns) {
      ++report.problems["negative duration"];
      continue;
    }
    Rank& rank = made[known->second];
    const bool on_device = is_of_device(event.what);
    const auto place = on_device ? std::pair(event.device, event.stream) : std::pair(std::int64_t{-1}, event.thread);
    const auto [thread, is_new_thread] =
        rank.threads.try_emplace(place, static_cast<std::uint32_t>(rank.file.threads.size()));
    if (is_new_thread) {
      ChromeThread& row = rank.file.threads.emplace_back();
      row.pid = std::to_string(place.first);
      row.tid = std::to_string(place.second);
      row.name = on_device ? "stream " + row.tid : "thread " + std::to_string(event.thread % kPidUnit);
    }
    const auto [info, is_new_info] =
        rank.infos.try_emplace({static_cast<std::int64_t>(event.what), event.name, thread->second},
                               static_cast<std::uint32_t>(rank.file.infos.size()));
    if (is_new_info) {
      const auto text = report.strings.find(event.name);
      const Told told = told_by(event.what, text == report.strings.end() ? "" : text->second, steps);
      rank.file.infos.push_back({.name = rank.file.texts.id(token_made(told.name)),
                                 .category = rank.file.texts.id(told.category),
                                 .thread = thread->second});
    }
    const bool is_linked =
        event.what != What::range && event.correlation > 0 && event.correlation <= std::numeric_limits<int>::max();
    rank.file.events.push_back({.begin_ns = event.begin_ns,
                                .duration_ns = event.end_ns - event.begin_ns,
                                .detail = kNoDetail,
                                .info = info->second,
                                .step = is_linked ? static_cast<std::int32_t>(event.correlation) : kNoStep});
  }
  for (const auto& [problem, count] : report.problems) trace_.problems[problem] += count;
  const bool in_range = report.begin_ns > 0 && report.begin_ns < kMost;
  for (Rank& rank : made) {
    Header header;
    header.base_ns = in_range ? report.begin_ns : 0;
    header.rank = made.size() == 1 ? rank_of_file(path).value_or(kNoRank) : kNoRank;
    header.host = report.host;
    if (!rank.file.events.empty()) add_ranks(rank.file, header, path, made.size() == 1);
  }
  trace_.source = &kNsight;
}

}  // namespace ms::tracepp
