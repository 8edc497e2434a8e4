// The log: one line per event to standard error, from any thread. The subsystem is the module that writes:
//   2026-11-21T02:40:11.123 W rank 7 n12 ckpt: shard 3 checksum differs, expected 1f.. got a0.., file /x/y.h5
// Which lines are written is MS_LOG, "info,comm:debug": a level for all, then levels of modules. "ring" is "info" whose
// debug lines are kept too, but only in the ring of the last lines, which a failed assertion (and the watchdog) prints.
// A level that is off costs one atomic load. Lower case, values separated by spaces or commas so that a double click
// selects them. Results do not belong here: they go to standard output.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::log {

enum class Level : int { error, warn, info, debug };

// Labels what the current thread logs with a rank, for as long as it lives (ranks may be threads of one process). A
// thread without a label belongs to no rank, as in tools and in the driver.
class RankScope {
 public:
  explicit RankScope(int rank);
  RankScope(const RankScope&) = delete;
  RankScope& operator=(const RankScope&) = delete;
  ~RankScope();

 private:
  std::optional<int> before_;
};

// Replaces the filter; throws ms::Error("log.filter", user) for a level that does not exist.
void set_filter(std::string_view filter);

// The newest lines, oldest first, written or not.
std::vector<std::string> recent_lines();
// Prints them to standard error. assert_failed() calls it.
void dump_recent() noexcept;

// While a progress bar stands on the terminal's last line, a line of the log wipes it first. Progress calls this.
void set_bar_on_terminal(bool shown);

namespace detail {
inline std::atomic<int> most_verbose{static_cast<int>(Level::debug)};  // of any room, once the filter has been read
bool room_enabled(Level level, std::string_view room);
void write(Level level, std::string_view room, std::string_view message, bool all_ranks);
}  // namespace detail

inline bool enabled(Level level, std::string_view room) {
  return static_cast<int>(level) <= detail::most_verbose.load(std::memory_order_relaxed) &&
         detail::room_enabled(level, room);
}

template <class... Args>
void error(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::error, room)) {
    detail::write(Level::error, room, fmt::format(format, std::forward<Args>(args)...), true);
  }
}

template <class... Args>
void warn(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn, room)) {
    detail::write(Level::warn, room, fmt::format(format, std::forward<Args>(args)...), true);
  }
}

// Written by rank 0 and by threads without a rank; other ranks' lines go to the ring.
template <class... Args>
void info(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info, room)) {
    detail::write(Level::info, room, fmt::format(format, std::forward<Args>(args)...), false);
  }
}

template <class... Args>
void debug(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug, room)) {
    detail::write(Level::debug, room, fmt::format(format, std::forward<Args>(args)...), true);
  }
}

}  // namespace ms::log
