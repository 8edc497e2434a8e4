#include "tracepp/read/flight_recorder_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "tracepp/read/chrome_tokens.h"
#include "tracepp/read/flight_recorder_run.h"
#include "tracepp/read/trace_names.h"
#include "unpack/pickle.h"

namespace ms::tracepp {
namespace {

// Counts the elements of a list of shapes: "[[2, 3], [4]]" -> 2 * 3 + 4; -1 if the text is no such list.
std::int64_t elements_of(std::string_view sizes) {
  std::int64_t sum = 0, count = 1;
  bool any = false, in_tensor = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const char c = sizes[i];
    if (c >= '0' && c <= '9') {
      std::int64_t size = 0;
      const auto [stop, error] = std::from_chars(sizes.data() + i, sizes.data() + sizes.size(), size);
      if (error != std::errc{} || __builtin_mul_overflow(count, size, &count)) return -1;
      i = static_cast<std::size_t>(stop - sizes.data()) - 1;
      in_tensor = any = true;
    } else if (c == ']' && in_tensor) {
      if (__builtin_add_overflow(sum, count, &sum)) return -1;
      count = 1;
      in_tensor = false;
    } else if (c == '-') {
      return -1;
    }
  }
  return any ? sum : -1;
}

// Returns the type that all tensors share: `["Float", "Float"]` -> "Float". Different types stay as they are.
std::string one_type(std::string_view types) {
  std::string first;
  for (std::size_t at = types.find('"'); at != std::string_view::npos; at = types.find('"', at)) {
    const std::size_t end = types.find('"', at + 1);
    if (end == std::string_view::npos) break;
    const std::string_view type = types.substr(at + 1, end - at - 1);
    if (!first.empty() && first != type) return std::string(types);
    first = type;
    at = end + 1;
  }
  return first;
}

// "nccl:send 1->2" or "nccl:recv 3<-0": sender and receiver, as numbers in the group.
struct Ends {
  int from = -1, to = -1;
};
Ends ends_of(std::string_view operation) {
  const std::size_t space = operation.rfind(' ');
  if (space == std::string_view::npos) return {};
  int self = -1, peer = -1;
  const char* const end = operation.data() + operation.size();
  const auto [arrow, error] = std::from_chars(operation.data() + space + 1, end, self);
  if (error != std::errc{} || end - arrow < 3) return {};
  const std::string_view way(arrow, 2);
  if (std::from_chars(arrow + 2, end, peer).ec != std::errc{} || self < 0 || peer < 0) return {};
  if (way == "->") return {.from = self, .to = peer};
  if (way == "<-") return {.from = peer, .to = self};
  return {};
}

// Returns whether the tensors of all members have the same size. What a scatter writes is as large everywhere, but
// backends record it differently.
bool has_even_sizes(std::string_view operation) {
  return !operation.ends_with("_v") && !operation.ends_with(":scatter");
}

std::int64_t time_of(std::string_view token) {
  const auto time_ns = parse_int(token);  // null: not known
  return time_ns && *time_ns > 0 && *time_ns < std::int64_t{1} << 62 ? *time_ns : 0;
}

// Adds a frame to a stack, the innermost first; those of PyTorch are left out.
bool add_frame(JsonValue& frame, std::string& stack) {
  constexpr std::size_t kLongest = 160;
  std::string name, file, line;
  const bool sound = each_field(frame, [&](std::string_view key, JsonValue& value) {
    if (key == "name") name = unescaped(token_of(value));
    if (key == "filename") file = unescaped(token_of(value));
    if (key == "line") line = token_of(value);
    return true;
  });
  if (!sound) return false;
  if (name.empty() || file.find("-packages/torch/") != std::string::npos || stack.size() > kLongest) return true;
  stack += fmt::format("{}{} ({}:{})", stack.empty() ? "" : " < ", name.substr(0, kLongest),
                       file.substr(file.rfind('/') + 1).substr(0, kLongest), line.substr(0, 10));
  return true;
}

}  // namespace

bool is_flight_recorder(std::string_view beginning, bool) {
  const auto has = [&](std::string_view part) { return beginning.find(part) != std::string_view::npos; };
  return begins_json(beginning) && !has("\"traceEvents\"") &&
         (has("\"profiling_name\"") || has("\"collective_seq_id\"") || has("\"last_enqueued_collective\"") ||
          (has("\"pg_config\"") && has("\"pg_status\"")));
}

bool FlightRecorderReader::read_entry(JsonObject& object, RecorderEntry& entry) {
  return each_field(object, [&](std::string_view key, JsonValue& value) {
    entry.last_field = key;
    if (key == "process_group") {
      std::size_t place = 0;
      return each_value(value, [&](JsonValue& name) {
        if (place < 2) (place == 0 ? entry.group : entry.description) = unescaped(token_of(name));
        ++place;
        return true;
      });
    }
    if (key == "frames") return each_value(value, [&](JsonValue& frame) { return add_frame(frame, entry.stack); });
    std::string* const texts = key == "input_sizes"     ? &entry.input_sizes
                               : key == "output_sizes"  ? &entry.output_sizes
                               : key == "input_dtypes"  ? &entry.input_types
                               : key == "output_dtypes" ? &entry.output_types
                                                        : nullptr;
    if (texts != nullptr) {
      std::string_view text;
      if (!text_of(value, text)) return false;
      *texts = text;
    }
    if (key == "profiling_name") entry.operation = unescaped(token_of(value));
    if (key == "state") entry.state = unescaped(token_of(value));
    if (key == "collective_seq_id" || key == "seq_id") entry.sequence = parse_int(token_of(value)).value_or(-1);
    if (key == "p2p_seq_id") entry.p2p_sequence = parse_int(token_of(value)).value_or(-1);
    if (key == "timeout_ms") entry.timeout_ms = parse_int(token_of(value)).value_or(0);
    if (key == "record_id") entry.record = parse_int(token_of(value)).value_or(-1);
    if (key == "is_p2p") entry.is_p2p = token_of(value) == "true";
    if (key == "pg_id") entry.group_id = parse_int(token_of(value)).value_or(-1);
    if (key == "retired") entry.is_retired = token_of(value) == "true";
    if (key == "time_created_ns") entry.created_ns = time_of(token_of(value));
    if (key == "time_discovered_started_ns") entry.started_ns = time_of(token_of(value));
    if (key == "time_discovered_completed_ns") entry.completed_ns = time_of(token_of(value));
    return true;
  });
}

void FlightRecorderReader::read_groups(std::string_view value, JsonObjects& objects) {
  const std::span<char> span(const_cast<char*>(value.data()), value.size());  // of the reader's own window
  const auto read = [&](JsonObject& object) {
    return each_field(object, [&](std::string_view key, JsonValue& group) {
      std::string name(key), description;
      std::vector<int> ranks;
      const bool sound = each_field(group, [&](std::string_view part, JsonValue& shown) {
        std::string_view text;
        if (!text_of(shown, text)) return false;
        if (part == "name") name = unescaped(text);
        if (part == "desc") description = unescaped(text);
        if (part == "ranks") ranks = parse_ranks(unescaped(text));
        return true;
      });
      if (sound) groups_.add(name, description, ranks);
      return sound;
    });
  };
  if (!objects.one(span, read)) ++trace_.problems["record that is no sound JSON object"];
}

void FlightRecorderReader::read_status(std::string_view value, JsonObjects& objects) {
  const std::span<char> span(const_cast<char*>(value.data()), value.size());  // of the reader's own window
  const auto read = [&](JsonObject& object) {
    return each_field(object, [&](std::string_view id, JsonValue& group) {
      RecorderStatus status;
      const bool sound = each_field(group, [&](std::string_view part, JsonValue& shown) {
        const std::int64_t number = parse_int(unescaped(token_of(shown))).value_or(-1);  // JSON dumps have it as text
        if (part == "last_enqueued_collective") status.enqueued = number;
        if (part == "last_completed_collective") status.completed = number;
        return true;
      });
      if (const auto number = parse_int(id); sound && number) statuses_[*number] = status;
      return sound;
    });
  };
  if (!objects.one(span, read)) ++trace_.problems["record that is no sound JSON object"];
}

std::int64_t FlightRecorderReader::read(TextInput& input, bool is_cut_off) {
  JsonText text(input);
  Problems problems;
  JsonObjects objects(text, problems);
  groups_ = {};
  known_.clear();
  statuses_.clear();
  RankTrace rank;
  rank.rank = -1;
  rank.file = input.path();
  rank.is_cut_off = is_cut_off;
  std::vector<RecorderEntry> entries;
  const auto read_entries = [&] {
    text.take();  // the bracket
    return objects.each([&](JsonObject& object) {
      RecorderEntry entry;
      if (!read_entry(object, entry)) return false;
      if (!entries.empty() && (entries.back().state == "completed" || entries.back().is_retired))
        entries.back().stack = std::string();
      entries.push_back(std::move(entry));
      return true;
    });
  };
  const bool is_list = text.peek() == '[';  // of entries and nothing else: the first versions of the format
  bool cut = is_list ? !read_entries() : text.peek() != '{';
  if (!is_list && !cut) text.take();
  while (!is_list && !cut && text.peek() != '}') {
    if (text.peek() == ',') {
      text.take();
      continue;
    }
    const auto token = text.key();
    if (!token) {
      cut = true;
      break;
    }
    const std::string key(*token);
    if (key == "\"entries\"" && text.peek() == '[') {
      cut = !read_entries();
      continue;
    }
    const auto value = text.value();
    if (!value || value->empty()) {
      cut = true;
      break;
    }
    if (key == "\"pg_config\"") read_groups(*value, objects);
    if (key == "\"pg_status\"") read_status(*value, objects);
    if (key == "\"rank\"")
      rank.rank = static_cast<int>(std::clamp<std::int64_t>(parse_int(*value).value_or(-1), -1, 1'000'000'000));
    if (key == "\"host_name\"" || key == "\"hostname\"") rank.host = unescaped(*value);
  }
  rank.is_cut_off |= cut;
  if (rank.is_cut_off) drop_unfinished(entries);
  if (cut) ++problems[input.trouble().empty() ? "file is cut off" : input.trouble()];
  for (const auto& [problem, count] : problems) {
    if (count > 0) trace_.problems[problem] += count;
  }
  if (rank.rank < 0) {
    rank.rank = rank_of_file(input.path()).value_or(-1);
    rank.numbered = Numbered::by_name;
  }
  if (rank.numbered == Numbered::by_name) {
    if (const int own = own_rank(entries); own >= 0) {
      rank.rank = own;
      rank.numbered = Numbered::inside;
    }
  }
  add(entries, rank);
  if (rank.events.empty() && groups_.largest() == 0) return 0;
  // A dump does not say when it was written. The time stamp of its file does, unless the file was copied later.
  rank.file_ns = input.modified_ns();
  find_written(rank);
  rank.clock_ns = rank.realtime_ns = rank.last_flush_ns;
  trace_.ranks.push_back(std::move(rank));
  trace_.source = &kFlightRecorder;
  return static_cast<std::int64_t>(groups_.largest());
}

int FlightRecorderReader::own_rank(const std::vector<RecorderEntry>& entries) {
  for (const RecorderEntry& entry : entries) {
    const Ends ends = ends_of(entry.operation);
    if (ends.from < 0) continue;
    const std::vector<int>& ranks = known(entry).group.ranks;
    const int place = comm_kind(entry.operation) == Kind::send ? ends.from : ends.to;
    if (static_cast<std::size_t>(place) < ranks.size()) return ranks[static_cast<std::size_t>(place)];
  }
  return -1;
}

void FlightRecorderReader::add(std::vector<RecorderEntry>& entries, RankTrace& rank) {
  if (std::ranges::all_of(entries, [](const RecorderEntry& it) { return it.record >= 0; }))
    std::ranges::stable_sort(entries, {}, &RecorderEntry::record);
  rank.counts_process = counts_process(entries);
  rank.is_partial = lacks_entries(entries, statuses_, rank.counts_process);
  if (is_of_torchcomms(entries)) {
    end_retired(entries);
  } else if (rank.is_partial) {
    end_unlisted(entries, statuses_);
  }
  fold_batches(entries);
  rank.hides_failures = find_ended(entries, statuses_);
  find_begun(entries);
  std::map<std::int32_t, std::uint32_t> counts;
  for (const RecorderEntry& entry : entries) add(entry, rank, counts);
  if (!rank.is_partial || rank.counts_process) return;
  for (const auto& [name, number] : newest_numbers(entries, statuses_, groups_.names()))
    rank.newest.emplace_back(tables_.group(groups_.group(name, "", {})), number);
}

FlightRecorderReader::Known& FlightRecorderReader::known(const RecorderEntry& entry) {
  const auto [place, is_new] = known_.try_emplace(entry.group);
  if (is_new) place->second.group = groups_.group(entry.group, entry.description, {});
  return place->second;
}

void FlightRecorderReader::add(const RecorderEntry& entry, RankTrace& rank,
                               std::map<std::int32_t, std::uint32_t>& counts) {
  Event event;
  const std::int64_t begin_ns = entry.started_ns > 0 ? entry.started_ns : entry.created_ns;
  event.begin_ns = begin_ns;
  if (entry.state == "completed") {
    event.state = State::ended;
    event.duration_ns = std::max<std::int64_t>(0, entry.completed_ns - begin_ns);
    if (entry.completed_ns == 0 && !entry.is_retired) ++trace_.problems["operation that was completed at no time"];
  } else if (entry.state == "started") {
    event.state = State::begun;
  } else if (entry.state == "scheduled") {
    event.state = State::issued;
  } else {  // it was issued
    ++trace_.problems["operation in no known state"];
    event.state = State::issued;
  }

  constexpr std::int64_t kMostTimeout_s = 1'000'000'000;
  EventInfo info{.kind = comm_kind(entry.operation)};
  info.timeout_s = static_cast<std::int32_t>(std::clamp<std::int64_t>(entry.timeout_ms / 1000, 0, kMostTimeout_s));
  Known& of = known(entry);
  const ProcessGroup& group = of.group;
  // The tensors of a recv are its outputs, and so are those that all members of a scatter have; those of any other
  // operation are its inputs.
  const bool receives = info.kind == Kind::recv || entry.operation.ends_with(":scatter");
  const std::string type = one_type(receives ? entry.output_types : entry.input_types);
  info.type = trace_.strings.id(type);
  info.name = trace_.strings.id(entry.operation);
  const std::int64_t elements = elements_of(receives ? entry.output_sizes : entry.input_sizes);
  const int bytes = type_bytes(type);
  if (elements >= 0 && bytes > 0 && elements < std::int64_t{1} << 59 && has_even_sizes(entry.operation))
    info.size_bytes = elements * bytes;
  std::int64_t number = entry.sequence;
  if (trace::is_point_to_point(info.kind)) {
    const Ends ends = ends_of(entry.operation);
    info.name = 0;  // the channel says it
    if (ends.from >= 0) {
      const auto member = [&](int place) {
        return static_cast<std::size_t>(place) < group.ranks.size() ? group.ranks[static_cast<std::size_t>(place)]
                                                                    : place;
      };
      info.group = tables_.group(ProcessGroups::channel(group, member(ends.from), member(ends.to)));
    }
    // The dump numbers all of a rank's sends and recvs in the group together, so the numbers of the two ends differ.
    number = info.group >= 0 ? counts[info.group]++ : -1;
  } else if (entry.is_p2p) {  // a batch without its calls: it may wait for any member
    info.group = tables_.group(
        {.name = fmt::format("{} batches of rank {}", group.name, rank.rank), .ranks = {}, .axis = group.axis});
    number = entry.p2p_sequence;
  } else {
    if (of.index < 0) of.index = tables_.group(group);
    info.group = of.index;
    if (number < 0) number = counts[info.group]++;
  }
  event.detail = number >= 0 && number < kNoDetail ? static_cast<std::uint32_t>(number) : kNoDetail;
  event.info = tables_.info(info);
  rank.last_flush_ns = std::max({rank.last_flush_ns, event.end_ns(), entry.created_ns});
  if (!entry.stack.empty())
    rank.stacks.emplace_back(static_cast<std::uint32_t>(rank.events.size()), trace_.strings.id(entry.stack));
  rank.events.push_back(event);
}

std::int64_t FlightRecorderPickleReader::read(TextInput& input) {
  std::string bytes;
  std::vector<char> piece(1 << 20);
  for (std::size_t count = input.read(piece); count > 0 && bytes.size() <= unpack::kMaxPickleBytes;
       count = input.read(piece))
    bytes.append(piece.data(), count);
  if (bytes.size() > unpack::kMaxPickleBytes) {
    bytes.resize(unpack::kMaxPickleBytes);
    ++trace_.problems["file that is too large, the rest of it was left out"];
  }
  // Entries share the frames of their stacks, which JSON repeats.
  unpack::PickledJson dump = unpack::pickle_to_json(
      bytes, std::min(unpack::kMaxPickledJsonBytes, (std::size_t{64} << 20) + 256 * bytes.size()));
  if (!is_flight_recorder(dump.text, true))
    throw user_error("data.pickle", "a Python pickle that is no Flight Recorder dump");
  if (dump.is_cut_off) ++trace_.problems["file is cut off"];
  TextInput text(input, std::move(dump.text));
  return reader_.read(text, dump.is_cut_off);
}

}  // namespace ms::tracepp
