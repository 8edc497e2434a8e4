#include "tracepp/read/chrome_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "tracepp/read/launch_links.h"
#include "tracepp/read/pipeline_timeline.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

constexpr std::string_view kStepPrefix = "\"ProfilerStep#";
constexpr std::size_t kLanes = 255;  // and one for all beyond
constexpr int kMostUnlisted = 1 << 20;
constexpr std::string_view kCommParams = "\"record_param_comms\"";

// Returns the number of a collective that has none, from its place among those of its step: traces of ranks may begin
// at different steps.
std::uint32_t number_in_step(std::int32_t step, std::uint32_t place) {
  constexpr std::uint32_t kSteps = 1 << 18, kPlaces = 1 << 13;
  if (step == kNoStep) return place;
  return place < kPlaces ? (static_cast<std::uint32_t>(step) % kSteps + 1) * kPlaces + place : kNoDetail;
}

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

// The interpretation of all events with one ChromeInfo.
struct ChromeReader::Meaning {
  std::uint32_t info = 0;
  std::uint32_t rank = 0;  // index
  std::uint8_t lane = 0;
  bool on_device = false;
  bool is_linked = false;
  bool counted = false;                     // its number is how many there were before it,
  bool by_step = false;                     // in its step
  std::int32_t step = kNoStep;              // it is that step itself
  bool holds = false;                       // operators inside belong to it: a data loader, a save, compilation
  std::uint32_t info_inside = 0;            // of an operator that computes: the info where it does not, inside these
  std::optional<std::string> unknown = {};  // work of a device, of this category
};

bool is_chrome_trace(std::string_view beginning, bool is_named) {
  const auto has = [&](std::string_view part) { return beginning.find(part) != std::string_view::npos; };
  return begins_json(beginning) &&
         (is_named || has("\"traceEvents\"") || has("\"baseTimeNanoseconds\"") || has("\"distributedInfo\"") ||
          has("\"deviceProperties\"") || (beginning[beginning.find_first_not_of(" \t\r\n")] == '[' && has("\"ph\"")));
}

std::int64_t ChromeReader::read(TextInput& input) {
  JsonText text(input);
  ChromeFile file;
  ChromeEvents events(file);
  Header header;
  const auto cut_off = [&] {
    const std::string why = !input.trouble().empty() ? input.trouble()
                            : text.gave_up()         ? "value that is too large, the rest of the file was left out"
                                                     : "file is cut off";
    ++file.problems[why];
  };
  if (text.peek() == '[') {
    text.take();
    if (!events.read(text, input.is_packed() ? 0 : input.size_bytes())) cut_off();
  } else if (text.peek() == '{') {
    text.take();
    if (file.is_cut_off = !read_object(text, input, file, events, header); file.is_cut_off) cut_off();
  } else {
    cut_off();
  }
  events.finish();
  for (const auto& [problem, count] : file.problems) {
    if (count > 0) trace_.problems[problem] += count;
  }
  if (is_pipeline_timeline(file)) {
    add_pipeline_timeline(file, trace_, tables_, input.path());
  } else if (!file.events.empty()) {
    add_ranks(file, header, input.path());
  }
  return header.world;
}

bool ChromeReader::read_object(JsonText& text, TextInput& input, ChromeFile& file, ChromeEvents& events,
                               Header& header) {
  while (text.peek() != '}') {
    if (text.peek() == ',') {
      text.take();
      continue;
    }
    const auto token = text.key();
    if (!token) {
      if (text.peek() == '\0') return false;
      ++file.problems["text that is no JSON"];
      return true;
    }
    const std::string key(*token);
    if (key == "\"traceEvents\"" && text.peek() == '[') {
      text.take();
      if (!events.read(text, input.is_packed() ? 0 : input.size_bytes())) return false;
      continue;
    }
    const auto value = text.value();
    if (!value) return false;
    if (value->empty()) {
      ++file.problems["text that is no JSON"];
      return true;
    }
    if (key == "\"otherData\"" && value->find(kExportWriter) != std::string_view::npos) {
      throw user_error("trace.export", "it was made by ms-tracepp export: read the traces that it was made of");
    }
    if (key == "\"schemaVersion\"" || key == "\"deviceProperties\"") header.is_kineto = true;
    if (key == "\"deviceProperties\"") header.devices = device_names(*value);
    if (key == "\"baseTimeNanoseconds\"") {
      header.is_kineto = true;
      const auto base_ns = parse_int(*value);
      if (base_ns && *base_ns >= 0 && *base_ns < std::int64_t{1} << 62) {
        header.base_ns = *base_ns;
      } else {
        ++file.problems["time that is no number"];
      }
    }
    if (key == "\"host_name\"" || key == "\"hostname\"") header.host = unescaped(*value);
    if (key == "\"distributedInfo\"") {
      header.is_kineto = true;
      JsonObjects objects(text, file.problems);
      const std::span<char> span(const_cast<char*>(value->data()), value->size());  // of text's own window
      if (!objects.one(span, [&](JsonObject& object) { return read_distributed(object, header); })) {
        ++file.problems["record that is no sound JSON object"];
      }
    }
  }
  return true;
}

bool ChromeReader::read_distributed(JsonObject& object, Header& header) {
  const auto number = [](JsonValue& value) {
    return static_cast<int>(std::clamp<std::int64_t>(parse_int(token_of(value)).value_or(-1), -1, 1'000'000'000));
  };
  std::vector<std::pair<std::string, int>> unlisted;  // groups whose ranks are left out or cut off
  const auto read_group = [&](JsonValue& group) {
    std::string name, description;
    std::vector<int> ranks;
    int size = 0;
    const bool sound = each_field(group, [&](std::string_view key, JsonValue& value) {
      std::string_view text;
      if (!text_of(value, text)) return false;
      if (key == "pg_size" || key == "group_size") size = static_cast<int>(parse_int(text).value_or(0));
      if (key == "pg_name") name = unescaped(text);
      if (key == "pg_desc") description = unescaped(text);
      if (key == "ranks") ranks = parse_ranks(unescaped(text));
      return true;
    });
    if (sound) header.groups.add(name, description, ranks);
    if (sound && ranks.empty() && size > 1) unlisted.emplace_back(name, size);
    return sound;
  };
  const bool is_sound = each_field(object, [&](std::string_view key, JsonValue& value) {
    if (key == "rank") header.rank = number(value);
    if (key == "world_size") header.world = std::max(0, number(value));
    return key != "pg_config" || each_value(value, read_group);
  });
  for (const auto& [name, size] : unlisted)
    if (size == header.world && size <= kMostUnlisted) header.groups.add(name, "", all_ranks(size));
  return is_sound;
}

EventInfo ChromeReader::comm_of(const ChromeFile& file, const ChromeInfo& info, const Header& header, int rank,
                                KnownGroups& groups) {
  EventInfo made{.kind = comm_kind(unescaped(file.texts.text(info.name)))};
  if (info.comm < 0) {
    // Older versions write no arguments: with one group of all ranks it is that one.
    const std::optional<ProcessGroup> sole = header.groups.sole();
    if (sole && !trace::is_point_to_point(made.kind)) made.group = tables_.group(*sole);
    return made;
  }
  const ChromeComm& comm = file.comms[static_cast<std::size_t>(info.comm)];
  const auto text = [&](std::uint32_t id) {
    return id == ChromeComm::kNone ? std::string() : unescaped(file.texts.text(id));
  };
  if (comm.collective != ChromeComm::kNone) made.kind = comm_kind(text(comm.collective));
  const std::string type = text(comm.type);
  made.type = trace_.strings.id(type);
  const int bytes = type_bytes(type);
  if (comm.elements >= 0 && bytes > 0 && comm.elements < std::int64_t{1} << 59) {
    made.size_bytes = comm.elements * bytes;
  }
  if (comm.group == ChromeComm::kNone) return made;
  const std::vector<int> ranks = parse_ranks(text(comm.ranks));
  const auto [place, is_new] = groups.try_emplace({comm.group, ranks.empty() ? ChromeComm::kNone : comm.ranks});
  KnownGroup& known = place->second;
  if (is_new) {
    known.group = header.groups.group(text(comm.group), text(comm.description), ranks);
    known.sorted = known.group.ranks;
    std::ranges::sort(known.sorted);
  }
  const int number = made.kind == Kind::send ? comm.target : comm.source;
  if (trace::is_point_to_point(made.kind) && number >= 0 && rank >= 0) {
    const int peer = peer_of(known.group, known.sorted, number, rank);
    made.group = tables_.group(made.kind == Kind::send ? ProcessGroups::channel(known.group, rank, peer)
                                                       : ProcessGroups::channel(known.group, peer, rank));
  } else if (!trace::is_point_to_point(made.kind)) {
    if (known.index < 0) known.index = tables_.group(known.group);
    made.group = known.index;
  }
  return made;
}

std::vector<ChromeReader::Meaning> ChromeReader::meanings(ChromeFile& file, const Header& header,
                                                          std::vector<RankTrace>& ranks) {
  // Every process a rank, or all of them one.
  const bool many = !file.processes.empty() && std::ranges::all_of(file.processes, [](const auto& process) {
    return rank_of_process(process.second) >= 0;
  });
  std::map<int, std::uint32_t> index_of;
  std::vector<std::uint32_t> rank_of_thread, lane_of_thread;
  for (const ChromeThread& thread : file.threads) {
    const auto process = file.processes.find(thread.pid);
    const int rank = many && process != file.processes.end() ? rank_of_process(process->second) : header.rank;
    const auto [place, is_new] = index_of.try_emplace(rank, static_cast<std::uint32_t>(ranks.size()));
    if (is_new) ranks.emplace_back().rank = rank;
    rank_of_thread.push_back(place->second);
    auto& lanes = ranks[place->second].lanes;
    lane_of_thread.push_back(static_cast<std::uint32_t>(std::min(lanes.size(), kLanes)));
    if (lanes.size() == kLanes + 1) {
      ++trace_.problems["threads that share the last lane"];
      continue;
    }
    lanes.push_back(
        trace_.strings.id(thread.name.empty() ? unescaped(thread.pid) + " " + unescaped(thread.tid) : thread.name));
  }
  std::vector<Meaning> found;
  KnownGroups groups;
  for (const std::string& name : header.groups.names()) tables_.group(header.groups.group(name, "", {}));
  // Without a device that computes, the operators on the CPU are the computing.
  std::vector<EventRow> rows;
  for (const ChromeInfo& info : file.infos) rows.push_back(row_of(file, info));
  const auto is_device = [](EventRow row) { return row != EventRow::host && row != EventRow::host_operator; };
  const bool on_host = std::ranges::none_of(rows, is_device);
  const std::optional<ProcessGroup> sole = header.groups.sole();
  // A loader that runs ahead in a thread of its own holds nothing up.
  std::vector<bool> has_steps(file.threads.size());
  for (const ChromeInfo& info : file.infos) {
    if (file.texts.text(info.name).starts_with(kStepPrefix)) has_steps[info.thread] = true;
  }
  const bool knows_steps = std::ranges::find(has_steps, true) != has_steps.end();
  for (const ChromeInfo& info : file.infos) {
    const std::string& name = file.texts.text(info.name);
    const std::string& category = file.texts.text(info.category);
    Meaning& meaning = found.emplace_back();
    meaning.rank = rank_of_thread[info.thread];
    meaning.lane = static_cast<std::uint8_t>(lane_of_thread[info.thread]);
    const EventRow row = rows[found.size() - 1];
    meaning.on_device = is_device(row);
    const bool annotates = row == EventRow::ignored;
    Origin origin = origin_of(category);
    if (origin == Origin::unknown && meaning.on_device && !annotates) origin = Origin::kernel;
    EventInfo made;
    if (name.starts_with(kStepPrefix)) {
      const auto step =
          parse_int(std::string_view(name).substr(kStepPrefix.size(), name.size() - kStepPrefix.size() - 1));
      if (step && *step >= 0 && *step < 0x7fffffff) meaning.step = static_cast<std::int32_t>(*step);
      if (meaning.step != kNoStep && !annotates) made.kind = Kind::step;
    } else if (meaning.on_device && !annotates) {
      const bool comm = info.comm >= 0 || is_comm_kernel(unescaped(name));
      if (row == EventRow::unknown && !comm) meaning.unknown = unescaped(category);
      if (std::string& device = ranks[meaning.rank].device; device.empty())
        device = device_name(header.devices, file.threads[info.thread].pid);
      // Other events in a row of communication are parts of its operations.
      if (row != EventRow::communication || comm)
        made = comm ? comm_of(file, info, header, ranks[meaning.rank].rank, groups)
                    : EventInfo{.kind = origin == Origin::copy ? Kind::other : kernel_kind(unescaped(name))};
    } else if (name == kCommParams && info.comm >= 0) {
      comm_of(file, info, header, ranks[meaning.rank].rank, groups);  // the ranks of its group
    } else if (is_host_collective(name, category)) {
      made.kind = comm_kind(unescaped(name));
      meaning.by_step = sole && !trace::is_point_to_point(made.kind);
      if (meaning.by_step) made.group = tables_.group(*sole);
    } else if ((origin == Origin::annotation || origin == Origin::python) && (!knows_steps || has_steps[info.thread])) {
      made.kind = host_kind(unescaped(name));
      meaning.holds = made.kind != Kind::other || compiles(unescaped(name));
    } else if (on_host && compiles(unescaped(name))) {
      meaning.holds = true;
    } else if (on_host && is_host_operator(name, row)) {
      made.kind = kernel_kind(unescaped(name));
      ranks[meaning.rank].device = "cpu";
    }
    made.origin = origin;
    made.chunk = info.chunk;
    if (info.shape != ChromeComm::kNone) add_work(made, unescaped(name), file.texts.text(info.shape), trace_.strings);
    meaning.is_linked = has_correlation(category);
    if (made.kind != Kind::step) made.name = trace_.strings.id(unescaped(name));
    meaning.counted = meaning.by_step || trace::is_point_to_point(made.kind);
    meaning.info = meaning.info_inside = tables_.info(made);
  }
  if (std::ranges::any_of(found, &Meaning::holds)) {
    for (Meaning& meaning : found) {
      EventInfo inside = trace_.infos[meaning.info];
      if (inside.origin == Origin::op) inside.kind = Kind::other;
      meaning.info_inside = tables_.info(inside);
    }
  }
  return found;
}

void ChromeReader::add_ranks(ChromeFile& file, const Header& header, const std::string& path, bool by_name) {
  Header known = header;
  if (known.rank < 0 && by_name) known.rank = rank_of_file(path).value_or(kNoRank);
  if (known.host.empty()) known.host = host_of_file(path);
  std::vector<RankTrace> ranks;
  const std::vector<Meaning> meanings_of = meanings(file, known, ranks);
  const auto meaning = [&](const Event& event) -> const Meaning& { return meanings_of[event.info]; };
  sort_by_begin(file.events);

  // The steps as the host and as the device saw them. The host's step is used where the device has none.
  struct Marks {
    std::vector<const Event*> host, device;
    std::size_t at_host = 0, at_device = 0;
  };
  std::vector<Marks> marks(ranks.size());
  for (const Event& event : file.events) {
    const Meaning& of = meaning(event);
    if (of.step != kNoStep) (of.on_device ? marks[of.rank].device : marks[of.rank].host).push_back(&event);
  }
  const auto step_at = [&](const std::vector<const Event*>& steps, std::size_t& at, std::int64_t time_ns) {
    while (at + 1 < steps.size() && steps[at + 1]->begin_ns <= time_ns) ++at;
    const bool inside = at < steps.size() && time_ns >= steps[at]->begin_ns && time_ns < steps[at]->end_ns();
    return inside ? meaning(*steps[at]).step : kNoStep;
  };
  std::vector<std::int32_t> correlations;  // of the linked events, in their order
  for (Event& event : file.events) {
    const Meaning& of = meaning(event);
    Marks& mark = marks[of.rank];
    if (of.is_linked) correlations.push_back(std::exchange(event.step, kNoStep));
    if (of.step != kNoStep) {
      event.step = of.step;
    } else if (event.step == kNoStep) {
      const bool by_device = of.on_device && !mark.device.empty();
      event.step = by_device ? step_at(mark.device, mark.at_device, event.begin_ns)
                             : step_at(mark.host, mark.at_host, event.begin_ns);
    }
  }

  std::vector<std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t>> counts(ranks.size());  // by group, step
  std::vector<LaunchLinks> links(ranks.size());
  const bool one = ranks.size() == 1;
  std::vector<std::array<std::int64_t, kLanes + 1>> held_until(ranks.size());  // by lane
  for (auto& lanes : held_until) lanes.fill(std::numeric_limits<std::int64_t>::min());
  std::uint32_t place = 0, linked = 0;
  for (Event& event : file.events) {
    const Meaning& of = meaning(event);
    if (of.is_linked) {
      const std::int32_t correlation = correlations[linked++];
      const auto at = one ? place : static_cast<std::uint32_t>(ranks[of.rank].events.size());
      auto& ends = of.on_device ? links[of.rank].work : links[of.rank].calls;
      if (correlation != kNoStep) ends.emplace_back(correlation, at);
    }
    ++place;
    std::int64_t& held_ns = held_until[of.rank][of.lane];
    event.info = event.begin_ns < held_ns ? of.info_inside : of.info;
    if (of.holds) held_ns = std::max(held_ns, event.end_ns());
    event.lane = of.lane;
    event.begin_ns += known.base_ns;
    const EventInfo& info = trace_.infos[event.info];
    if (of.on_device && info.kind != Kind::step && (info.kind != Kind::other || info.origin == Origin::copy)) {
      trace_.device_ns += event.duration_ns;
      if (of.unknown) trace_.unknown_device_ns[*of.unknown] += event.duration_ns;
    }
    if (info.kind == Kind::step) event.detail = static_cast<std::uint32_t>(event.step);
    if (of.counted && info.group >= 0) {
      const std::int32_t step = of.by_step ? event.step : kNoStep;
      event.detail = number_in_step(step, counts[of.rank][{info.group, step}]++);
    }
    if (!one) ranks[of.rank].events.push_back(event);
  }
  if (one) ranks[0].events = std::move(file.events);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankTrace& rank = ranks[r];
    if (rank.events.empty()) continue;
    rank.launches = links[r].joined();
    rank.file = path;
    rank.host = known.host;
    rank.is_cut_off = file.is_cut_off;
    if (known.base_ns != 0) rank.clock_ns = rank.realtime_ns = rank.events.front().begin_ns;
    for (const Event& event : rank.events) rank.last_flush_ns = std::max(rank.last_flush_ns, event.end_ns());
    trace_.ranks.push_back(std::move(rank));
  }
  trace_.source = known.is_kineto ? &kKineto : &kChromeTrace;
}

}  // namespace ms::tracepp
