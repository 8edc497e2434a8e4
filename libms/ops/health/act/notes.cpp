#include "health/act/notes.h"

#include <unistd.h>

#include <cerrno>

#include "base/lock_file.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "health/act/state_json.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxNote = 500;
constexpr const char* kDecisionLock = "decision.lock";
constexpr const char* kUndrained = "undrained";

constexpr Refusal kNotesRefusal{.kind = "notes", .blame = Blame::node};

std::string name_of(std::uint32_t job) { return fmt::format("job-{}", job); }

}  // namespace

Notes::Notes(const std::string& path) : directory_(open_own_directory(path, 0755, 0022, kNotesRefusal)) {}

void Notes::write(std::uint32_t job, const std::vector<std::string>& lines) const {
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    std::string plain = plain_text(*line, kMaxNote) + "\n";
    if (text.size() + plain.size() > kMaxNoteBytes) break;
    text.insert(0, plain);
  }
  write_at(directory_, name_of(job), text, 0644, kNotesRefusal);
}

void Notes::remove(std::uint32_t job) const {
  if (::unlinkat(directory_.get(), name_of(job).c_str(), 0) == 0 || errno == ENOENT) return;
  throw Error(kNotesRefusal.kind, kNotesRefusal.blame,
              fmt::format("cannot remove the note of job {}: {}", job, errno_text(errno)));
}

void Notes::publish_undrain(const State& state) const {
  State undrain;
  undrain.last_undrain_wall_s = state.last_undrain_wall_s;
  undrain.last_undrain_s = state.last_undrain_s;
  undrain.undrain_boot = state.undrain_boot;
  write_at(directory_, kUndrained, state_to_json(undrain), 0644, kNotesRefusal);
}

State published_undrain(const std::string& path) {
  constexpr uid_t kRoot = 0;
  const std::string file = path + "/" + kUndrained;
  if (::access(file.c_str(), F_OK) != 0) return {};
  return state_from_json(read_trusted_file(file, kRoot, kMaxNoteBytes, kNotesRefusal));
}

UniqueFd Notes::try_lock_decision() const { return try_lock_at(directory_, kDecisionLock, kNotesRefusal); }

}  // namespace ms::health
