#include "health/act/state.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "base/lock_file.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "health/act/state_json.h"

namespace ms::health {
namespace {

constexpr const char* kStateName = "state.json";
constexpr const char* kHistoryName = "history.jsonl";
constexpr const char* kStateLock = "lock";
constexpr std::size_t kMaxStateBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxHistoryBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxEntryBytes = std::size_t{4} << 10;
constexpr double kStateLock_s = 1;  // others hold the lock for a few writes

constexpr Refusal kStateReadRefusal{.kind = "state.read", .blame = Blame::node};
constexpr Refusal kStateWriteRefusal{.kind = "state.write", .blame = Blame::node};

// The newest whole lines that take at most `max_bytes`.
std::string_view newest_lines(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  text.remove_prefix(text.size() - max_bytes - 1);
  const std::size_t end = text.find('\n');
  return end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
}

std::string this_boot(const Sysroot& root) {
  return std::string(trim(root.read("/proc/sys/kernel/random/boot_id").value_or("")));
}

}  // namespace

void note_undrain(State& state, const Sysroot& root, const Clock& clock) {
  state.last_undrain_wall_s = clock.wall_s();
  state.last_undrain_s = clock.now_s();
  state.undrain_boot = this_boot(root);
}

double since_undrain(const State& state, const Sysroot& root, const Clock& clock) {
  if (state.undrain_boot.empty()) return std::min(state.last_undrain_wall_s, clock.wall_s());
  return state.undrain_boot == this_boot(root) ? clock.wall_s() - (clock.now_s() - state.last_undrain_s) : 0;
}

StateDirectory::StateDirectory(const std::string& path)
    : directory_(open_own_directory(path, 0700, 0077, {.kind = "state.directory", .blame = Blame::node})) {}

State StateDirectory::load() const {
  return state_from_json(read_at(directory_, kStateName, kMaxStateBytes, kStateReadRefusal).value_or(""));
}

std::vector<HistoryEntry> StateDirectory::history() const {
  const std::string text = read_at(directory_, kHistoryName, kMaxHistoryBytes, kStateReadRefusal).value_or("");
  std::vector<HistoryEntry> entries;
  for (const std::string& line : split(text, '\n')) {
    if (auto entry = history_from_json(line)) entries.push_back(std::move(*entry));
  }
  return entries;
}

void StateDirectory::update(const std::function<void(State&)>& change) const {
  const UniqueFd lock = lock_at(directory_, kStateLock, kStateLock_s, kStateWriteRefusal);
  State state = load();
  const std::string before = state_to_json(state);
  change(state);
  if (state_to_json(state) != before) write(state);  // most prologs change nothing, and the disk may be slow
}

void StateDirectory::write(const State& state) const {
  std::string text = state_to_json(state);
  if (text.size() > kMaxStateBytes) {  // the rest of it matters more than counters, which come again
    State small = state;
    small.counters.clear();
    text = state_to_json(small);
  }
  write_at(directory_, kStateName, text, 0600, kStateWriteRefusal);
}

void StateDirectory::append_history(const HistoryEntry& entry) const {
  const std::string line = history_to_json(entry) + "\n";
  if (line.size() > kMaxEntryBytes) {
    throw Error("state.write", Blame::node, fmt::format("an entry of the history takes {} bytes", line.size()));
  }
  const UniqueFd lock = lock_at(directory_, kStateLock, kStateLock_s, kStateWriteRefusal);
  struct stat status {};
  const bool there = ::fstatat(directory_.get(), kHistoryName, &status, AT_SYMLINK_NOFOLLOW) == 0;
  const std::size_t size = there ? static_cast<std::size_t>(status.st_size) : 0;
  if (size + line.size() < kMaxHistoryBytes) {
    // A line that a crash cut short must not swallow this one.
    append_at(directory_, kHistoryName, "\n" + line, kStateWriteRefusal);
    return;
  }
  // The newer half stays, so that this is rare. A file that is larger than it can be is not ours: it goes.
  const std::string text = size <= kMaxHistoryBytes
                               ? read_at(directory_, kHistoryName, kMaxHistoryBytes, kStateWriteRefusal).value_or("")
                               : "";
  write_at(directory_, kHistoryName, std::string(newest_lines(text, kMaxHistoryBytes / 2)) + line, 0600,
           kStateWriteRefusal);
}

}  // namespace ms::health
