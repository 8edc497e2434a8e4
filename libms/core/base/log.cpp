// The only file that knows spdlog: its sinks write and keep the lines, its formatter stamps them. The state is one per
// process, as standard error is, and is never destroyed, so that threads may log while the process ends.
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/escape.h"
#include "base/text.h"

namespace ms::log {
namespace {

constexpr std::size_t kRingLines = 500;

struct Verbosity {
  Level shown = Level::info;
  Level kept = Level::info;  // in the ring; at least what is shown
};

struct Filter {
  Verbosity everywhere;
  std::map<std::string, Verbosity, std::less<>> rooms;
  const Verbosity& of(std::string_view room) const {
    const auto it = rooms.find(room);
    return it == rooms.end() ? everywhere : it->second;
  }
};

Verbosity parse_level(std::string_view name) {
  struct Row {
    std::string_view name;
    Verbosity verbosity;
  };
  constexpr std::array<Row, 5> kRows{{{"error", {Level::error, Level::error}},
                                      {"warn", {Level::warn, Level::warn}},
                                      {"info", {Level::info, Level::info}},
                                      {"ring", {Level::info, Level::debug}},
                                      {"debug", {Level::debug, Level::debug}}}};
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    if (row.name == name) return row.verbosity;
    names.emplace_back(row.name);
  }
  const auto near = nearest_name(name, names);
  throw user_error(
      "log.filter",
      fmt::format("the log filter (MS_LOG) has an unknown level '{}', the levels are {}", name, fmt::join(names, ", ")),
      near ? fmt::format("did you mean '{}'?", *near) : "");
}

Filter parse_filter(std::string_view text) {
  Filter filter;
  for (const std::string& item : split(text, ',')) {
    const std::size_t colon = item.find(':');
    if (colon == std::string::npos) {
      filter.everywhere = parse_level(item);
    } else {
      filter.rooms[std::string(trim(std::string_view(item).substr(0, colon)))] =
          parse_level(trim(std::string_view(item).substr(colon + 1)));
    }
  }
  return filter;
}

std::string short_host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string_view full(name);
  return std::string(full.substr(0, full.find('.')));
}

constexpr spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::error: return spdlog::level::err;
    case Level::warn: return spdlog::level::warn;
    case Level::info: return spdlog::level::info;
    case Level::debug: return spdlog::level::debug;
  }
  return spdlog::level::err;
}

class State {
 public:
  State() {
    for (spdlog::sinks::sink* sink : std::initializer_list<spdlog::sinks::sink*>{&screen_, &ring_}) {
      sink->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%e %L %v"));
    }
    // A bad MS_LOG is refused by run_tool(), which sets the filter itself; programs that are not tools get the default.
    Filter filter;
    try {
      if (const char* text = std::getenv("MS_LOG")) filter = parse_filter(text);
    } catch (const Error&) { filter = {}; }
    set(std::move(filter));
  }

  void set(Filter filter) {
    int most = static_cast<int>(filter.everywhere.kept);
    for (const auto& [room, verbosity] : filter.rooms) most = std::max(most, static_cast<int>(verbosity.kept));
    const std::lock_guard lock(mutex_);
    filter_ = std::move(filter);
    detail::most_verbose.store(most, std::memory_order_relaxed);
  }

  Verbosity verbosity(std::string_view room) {
    const std::lock_guard lock(mutex_);
    return filter_.of(room);
  }

  void write(Level level, const std::string& line, bool shown) {
    const spdlog::details::log_msg message("", spdlog_level(level), line);
    ring_.log(message);
    if (!shown) return;
    const std::lock_guard lock(screen_mutex_);
    if (bar_) std::fputs("\r\033[K", stderr);
    screen_.log(message);
  }

  void set_bar(bool shown) {
    const std::lock_guard lock(screen_mutex_);
    bar_ = shown;
  }

  std::vector<std::string> recent() { return ring_.last_formatted(); }
  const std::string& host() const { return host_; }

 private:
  const std::string host_ = short_host_name();
  spdlog::sinks::stderr_sink_mt screen_;
  spdlog::sinks::ringbuffer_sink_mt ring_{kRingLines};
  std::mutex mutex_;  // guards filter_
  Filter filter_;
  std::mutex screen_mutex_;  // guards bar_, and a wipe together with its line
  bool bar_ = false;
};

State& state() {
  static State& instance = *new State;
  return instance;
}

thread_local std::optional<int> current_rank;

}  // namespace

RankScope::RankScope(int rank) : before_(std::exchange(current_rank, rank)) {}
RankScope::~RankScope() { current_rank = before_; }

void set_filter(std::string_view filter) { state().set(parse_filter(filter)); }

std::vector<std::string> recent_lines() {
  std::vector<std::string> lines = state().recent();
  for (std::string& line : lines) line.erase(line.find_last_not_of('\n') + 1);
  return lines;
}

void dump_recent() noexcept {
  try {
    const std::vector<std::string> lines = recent_lines();
    std::fprintf(stderr, "ms: the last %zu lines of the log:\n", lines.size());
    for (const std::string& line : lines) std::fprintf(stderr, "  %s\n", line.c_str());
    std::fflush(stderr);
  } catch (...) {
    // The process is ending for a graver reason, which has been printed.
  }
}

void set_bar_on_terminal(bool shown) { state().set_bar(shown); }

bool detail::room_enabled(Level level, std::string_view room) { return level <= state().verbosity(room).kept; }

void detail::write(Level level, std::string_view room, std::string_view message, bool all_ranks) {
  const bool speaks = all_ranks || current_rank.value_or(0) == 0;
  std::string line = current_rank ? fmt::format("rank {} ", *current_rank) : std::string();
  line += fmt::format("{} {}: ", state().host(), room) + safe_line(message);  // one event stays one line
  state().write(level, line, speaks && level <= state().verbosity(room).shown);
}

}  // namespace ms::log
