#include "tracepp/read/chrome_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tracepp/read/op_shapes.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

int small(std::optional<std::int64_t> value) {
  return value && *value >= 0 && *value <= 1'000'000'000 ? static_cast<int>(*value) : -1;
}

// The Kineto categories whose args hold nothing that is read here. Among kernels, only those of NCCL have such args.
constexpr std::array<std::string_view, 10> kPlain{
    "\"cpu_op\"",     "\"python_function\"", "\"cuda_runtime\"", "\"cuda_driver\"",         "\"gpu_memcpy\"",
    "\"gpu_memset\"", "\"user_annotation\"", "\"overhead\"",     "\"gpu_user_annotation\"", "\"ac2g\""};

}  // namespace

// The fields of one event, as written in the file.
struct ChromeEvents::Fields {
  std::string_view name = "\"\"", category = "\"\"", pid = "0", tid = "0", begin, duration, correlation, id;
  std::string_view sizes;  // of an operator or a copy: the args, unread
  char phase = 0;
  const Args* args = nullptr;
};

struct ChromeEvents::Args {
  std::string_view label;  // "name" of metadata
  std::string_view collective, group, description, ranks, type, elements, out_elements, source, target, sequence,
      correlation;
  std::string_view step, rank, tp, pp, chunk, microbatch, stream;
};

bool ChromeEvents::read(JsonText& text, std::int64_t bytes_left) {
  JsonObjects objects(text, file_.problems);
  constexpr std::size_t kProbe = 4096;
  constexpr double kMostReserved = 1 << 26;  // a file may be a terabyte of holes
  std::int64_t probed_bytes = 0;
  const bool whole = objects.each([&](JsonObject& object) {
    if (bytes_left > 0 && file_.events.size() < kProbe) {
      // The size of the first events gives how many there will be: growing by and by takes twice the memory.
      std::string_view raw;
      if (object.raw_json().get(raw) || object.reset().error()) return false;
      probed_bytes += static_cast<std::int64_t>(raw.size()) + 1;
      const bool taken = take(object);
      if (file_.events.size() == kProbe) {
        const double expected = 1.1 * static_cast<double>(bytes_left) / static_cast<double>(probed_bytes) * kProbe;
        file_.events.reserve(static_cast<std::size_t>(std::min(expected, kMostReserved)));
      }
      return taken;
    }
    return take(object);
  });
  return whole;
}

bool ChromeEvents::take(JsonObject& object) {
  Fields fields;
  std::optional<Args> args;
  for (auto result : object) {
    simdjson::ondemand::field field;
    if (std::move(result).get(field)) return false;
    // Compares the key's raw bytes up to its quote. A key with escapes in it is not a known one.
    const char* const key = field.key().raw();
    JsonValue& value = field.value();
    const auto is = [&](std::string_view name) {
      return std::memcmp(key, name.data(), name.size()) == 0 && key[name.size()] == '"';
    };
    switch (key[0]) {
      case 'n':
        if (is("name")) fields.name = token_of(value);
        break;
      case 'p':
        if (is("ph")) {
          const std::string_view token = token_of(value);
          fields.phase = token.size() == 3 ? token[1] : '?';
        } else if (is("pid")) {
          fields.pid = token_of(value);
        }
        break;
      case 'c':
        if (is("cat")) fields.category = token_of(value);
        break;
      case 't':
        if (is("ts")) {
          fields.begin = token_of(value);
        } else if (is("tid")) {
          fields.tid = token_of(value);
        }
        break;
      case 'i':
        if (is("id")) fields.id = token_of(value);
        break;
      case 'd':
        if (is("dur")) fields.duration = token_of(value);
        break;
      case 'a':
        if (is("args")) {
          JsonObject inner;
          const std::string_view token = value.raw_json_token();
          if (token.empty() || token[0] != '{') break;
          if (is_plain(fields)) {
            std::string_view skipped;
            const bool sized = is_sized(fields);
            if (!sized && !is_linked(fields)) break;
            if (value.get_object().get(inner) || inner.raw_json().get(skipped)) return false;
            if (is_linked(fields)) fields.correlation = digits_behind(skipped, "\"correlation\"");
            if (sized) fields.sizes = skipped;
            break;
          }
          if (value.get_object().get(inner) || !read_args(inner, args.emplace())) return false;
          fields.args = &*args;
          fields.correlation = args->correlation;
        }
        break;
      default: break;
    }
  }
  switch (fields.phase) {
    case 'X':
    case 'B':
    case 'b': add(fields); break;
    case 'e':
    case 'E': end(fields); break;
    case 'M': add_metadata(fields); break;
    case 'i':
    case 'I':
    case 'C':
    case 's':
    case 't':
    case 'f': ++file_.problems["instants, counters and flow arrows that were skipped"]; break;
    default: ++file_.problems["events of another phase that were skipped"];
  }
  return true;
}

bool ChromeEvents::read_args(JsonObject& object, Args& args) {
  struct Known {
    std::string_view key;
    std::string_view Args::*field;
  };
  static constexpr std::array<Known, 21> kKnown{{{"correlation", &Args::correlation},
                                                 {"Collective name", &Args::collective},
                                                 {"Process Group Name", &Args::group},
                                                 {"Process Group Description", &Args::description},
                                                 {"Process Group Ranks", &Args::ranks},
                                                 {"In msg nelems", &Args::elements},
                                                 {"Out msg nelems", &Args::out_elements},
                                                 {"dtype", &Args::type},
                                                 {"Seq", &Args::sequence},
                                                 {"seq_id", &Args::sequence},
                                                 {"Src Rank", &Args::source},
                                                 {"Dst Rank", &Args::target},
                                                 {"step", &Args::step},
                                                 {"rank", &Args::rank},
                                                 {"tp", &Args::tp},
                                                 {"pp", &Args::pp},
                                                 {"model_chunk", &Args::chunk},
                                                 {"mb_id", &Args::microbatch},
                                                 {"stream", &Args::stream},
                                                 {"labels", &Args::label},
                                                 {"name", &Args::label}}};
  // Most keys are not known, and their first letter mostly suffices to skip them.
  static constexpr auto kFirst = [] {
    std::array<bool, 256> first{};
    for (const Known& known : kKnown) first[static_cast<unsigned char>(known.key[0])] = true;
    return first;
  }();
  for (auto result : object) {
    simdjson::ondemand::field field;
    if (std::move(result).get(field)) return false;
    const char* const key = field.key().raw();
    if (!kFirst[static_cast<unsigned char>(key[0])]) continue;
    for (const Known& known : kKnown) {
      if (key[0] != known.key[0] || std::memcmp(key, known.key.data(), known.key.size()) != 0 ||
          key[known.key.size()] != '"') {
        continue;
      }
      if (!text_of(field.value(), args.*known.field)) return false;
      break;
    }
  }
  return true;
}

std::uint32_t ChromeEvents::category(std::string_view token) {
  if (last_category_ < categories_.size() && categories_[last_category_].token == token) return last_category_;
  for (last_category_ = 0; last_category_ < categories_.size(); ++last_category_) {
    if (categories_[last_category_].token == token) return last_category_;
  }
  if (categories_.size() == kCategories) return last_category_ = 0;  // more than anybody means
  categories_.push_back({.token = std::string(token),
                         .text = file_.texts.id(token),
                         .is_plain = std::ranges::find(kPlain, token) != kPlain.end(),
                         .is_kernel = token == "\"kernel\"",
                         .is_linked = has_correlation(token),
                         .is_op = token == "\"cpu_op\"",
                         .is_copy = token == "\"gpu_memcpy\"" || token == "\"gpu_memset\""});
  return last_category_;
}

bool ChromeEvents::is_plain(const Fields& fields) {
  const Category& of = categories_[category(fields.category)];
  return (of.is_plain && fields.name != "\"record_param_comms\"") ||
         (of.is_kernel && !is_comm_kernel(fields.name.substr(fields.name.empty() ? 0 : 1), false));
}

bool ChromeEvents::is_linked(const Fields& fields) { return categories_[category(fields.category)].is_linked; }

bool ChromeEvents::is_sized(const Fields& fields) {
  const Category& of = categories_[category(fields.category)];
  return of.is_copy ||
         (of.is_op && fields.name.size() > 2 && has_formula(fields.name.substr(1, fields.name.size() - 2)));
}

std::uint32_t ChromeEvents::thread(std::string_view pid, std::string_view tid) {
  if (last_thread_ < file_.threads.size()) {  // mostly the same again
    const ChromeThread& last = file_.threads[last_thread_];
    if (last.tid == tid && last.pid == pid) return last_thread_;
  }
  std::string key(pid);
  key += '\n';  // in neither of them
  key += tid;
  const auto [place, is_new] = threads_.try_emplace(std::move(key), static_cast<std::uint32_t>(file_.threads.size()));
  if (is_new) {
    ChromeThread& thread = file_.threads.emplace_back();
    thread.pid = pid;
    thread.tid = tid;
    open_.emplace_back();
  }
  return last_thread_ = place->second;
}

std::int32_t ChromeEvents::comm(const Args& args) {
  const auto text = [&](std::string_view token) { return token.empty() ? ChromeComm::kNone : file_.texts.id(token); };
  // The size of an all-gather is that of its result, as nccl-tests counts.
  const bool gathers = comm_kind(args.collective) == Kind::all_gather && !args.out_elements.empty();
  const std::optional<std::int64_t> elements = parse_int(gathers ? args.out_elements : args.elements);
  const ChromeComm comm{.collective = text(args.collective),
                        .group = text(args.group),
                        .description = text(args.description),
                        .ranks = text(args.ranks),
                        .type = text(args.type),
                        .elements = elements && *elements >= 0 ? *elements : -1,
                        .source = small(parse_int(args.source)),
                        .target = small(parse_int(args.target))};
  const auto [place, is_new] = comms_.try_emplace(comm, static_cast<std::int32_t>(file_.comms.size()));
  if (is_new) file_.comms.push_back(comm);
  return place->second;
}

void ChromeEvents::read_args(const Args& args, Event& event, ChromeInfo& info, ChromeThread& thread) {
  const auto number = [](std::string_view token, std::int64_t most, std::int64_t otherwise) {
    const auto value = parse_int(token);
    return value && *value >= 0 && *value < most ? *value : otherwise;
  };
  event.detail = static_cast<std::uint32_t>(number(args.sequence, kNoDetail, kNoDetail));
  event.step = static_cast<std::int32_t>(number(args.step, 0x7fffffff, kNoStep));
  event.microbatch = static_cast<std::uint16_t>(number(args.microbatch, kNoMicrobatch, kNoMicrobatch));
  info.chunk = static_cast<std::int16_t>(number(args.chunk, 0x7fff, -1));
  if (!args.collective.empty() || !args.group.empty()) info.comm = comm(args);
  thread.has_stream |= !args.stream.empty();
  if (!args.rank.empty()) thread.rank = small(parse_int(args.rank));
  if (!args.tp.empty()) thread.tp = small(parse_int(args.tp));
  if (!args.pp.empty()) thread.pp = small(parse_int(args.pp));
}

std::uint32_t ChromeEvents::index(const ChromeInfo& info) {
  // An event mostly has the same info as the last one of its name.
  if (info.name >= last_infos_.size()) last_infos_.resize(file_.texts.size());
  std::uint32_t& last = last_infos_[info.name];
  if (last < file_.infos.size() && file_.infos[last] == info) return last;
  const auto [place, is_new] = infos_.try_emplace(info, static_cast<std::uint32_t>(file_.infos.size()));
  if (is_new) file_.infos.push_back(info);
  return last = place->second;
}

void ChromeEvents::add(const Fields& fields) {
  if (fields.name.starts_with("\"PyTorch Profiler"))
    return;  // how long it recorded, before and after the job's steps too
  Event event;
  if (!parse_us(fields.begin, event.begin_ns)) {
    ++file_.problems["time that is no number"];
    return;
  }
  if (fields.phase == 'X') {
    if (!fields.duration.empty() && !parse_us(fields.duration, event.duration_ns)) {
      ++file_.problems["duration that is no number"];
    }
    if (event.duration_ns < 0) {
      ++file_.problems["negative duration"];
      event.duration_ns = 0;
    }
  } else {
    event.state = State::begun;
  }
  event.detail = kNoDetail;
  const std::uint32_t thread_index = thread(fields.pid, fields.tid);
  ChromeInfo info{.name = file_.texts.id(fields.name),
                  .category = categories_[category(fields.category)].text,
                  .thread = thread_index};
  if (fields.args != nullptr) read_args(*fields.args, event, info, file_.threads[thread_index]);
  if (!fields.sizes.empty()) {
    const std::string shape = shape_of(fields.sizes, categories_[category(fields.category)].is_copy);
    if (!shape.empty()) info.shape = file_.texts.id(shape);
  }
  if (is_linked(fields)) {
    const std::int64_t correlation = parse_int(fields.correlation).value_or(-1);
    event.step = correlation >= 0 && correlation < 0x7fffffff ? static_cast<std::int32_t>(correlation) : kNoStep;
  }
  event.info = index(info);
  if (event.state == State::begun)
    open_of(fields, thread_index).push_back(static_cast<std::uint32_t>(file_.events.size()));
  file_.events.push_back(event);
}

void ChromeEvents::add_metadata(const Fields& fields) {
  if (fields.args == nullptr || fields.args->label.empty()) return;
  if (fields.name == "\"thread_name\"") {
    file_.threads[thread(fields.pid, fields.tid)].name = unescaped(fields.args->label);
  } else if (fields.name == "\"process_name\"") {
    file_.processes[std::string(fields.pid)] = unescaped(fields.args->label);
  } else if (fields.name == "\"process_labels\"") {
    file_.labels[std::string(fields.pid)] = unescaped(fields.args->label);
  }
}

std::vector<std::uint32_t>& ChromeEvents::open_of(const Fields& fields, std::uint32_t thread) {
  if (fields.phase == 'B' || fields.phase == 'E') return open_[thread];
  // Asynchronous events pair by category and number, whatever the thread.
  return open_async_[fmt::format("{}\n{}", fields.category, fields.id)];
}

void ChromeEvents::end(const Fields& fields) {
  const std::uint32_t thread_index = thread(fields.pid, fields.tid);
  std::int64_t end_ns = 0;
  if (!parse_us(fields.begin, end_ns)) {
    ++file_.problems["time that is no number"];
    return;
  }
  std::vector<std::uint32_t>& open = open_of(fields, thread_index);
  if (open.empty()) {
    ++file_.problems["end of an event that did not begin"];
    return;
  }
  Event& event = file_.events[open.back()];
  open.pop_back();
  event.duration_ns = end_ns - event.begin_ns;
  event.state = State::ended;
  if (event.duration_ns < 0) {
    ++file_.problems["negative duration"];
    event.duration_ns = 0;
  }
}

void ChromeEvents::finish() {
  std::size_t open = 0;
  for (const auto& of_thread : open_) open += of_thread.size();
  for (const auto& [id, events] : open_async_) open += events.size();
  if (open > 0) file_.problems["event that has no end"] += open;
}

}  // namespace ms::tracepp
