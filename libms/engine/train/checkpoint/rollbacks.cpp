#include "train/checkpoint/rollbacks.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/json.h"
#include "base/text.h"
#include "base/user_path.h"
#include "ckpt/directory.h"

namespace ms::train {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 56;  // sums of a few of them are no overflow
constexpr const char* kHint = "it lists the samples that the run leaves out, without which the run cannot be continued";

}  // namespace

std::string rollbacks_path(const std::string& checkpoint_dir) { return checkpoint_dir + "/rollbacks.json"; }

std::string to_json(const std::vector<Rollback>& rollbacks) {
  Json json{{"schema", 1}, {"rollbacks", Json::array()}};
  for (const Rollback& rollback : rollbacks) {
    json["rollbacks"].push_back({{"at", rollback.at},
                                 {"step", rollback.skip.step},
                                 {"begin", rollback.skip.begin},
                                 {"end", rollback.skip.end},
                                 {"source", rollback.source},
                                 {"seed", rollback.seed},
                                 {"why", rollback.why}});
  }
  return json.dump(1) + "\n";
}

std::vector<Rollback> parse_rollbacks(std::string_view text, const std::string& path) {
  std::vector<Rollback> rollbacks;
  if (text.empty()) return rollbacks;
  try {
    const Json json = Json::parse(text, {.max_depth = 4});
    if (json.get<int>("schema") != 1) throw JsonError("it has another version");
    for (const Json& entry : json.at("rollbacks")) {
      Rollback& rollback = rollbacks.emplace_back();
      entry.get_to("at", rollback.at);
      entry.get_to("step", rollback.skip.step);
      entry.get_to("begin", rollback.skip.begin);
      entry.get_to("end", rollback.skip.end);
      entry.get_to("source", rollback.source);
      entry.get_to("seed", rollback.seed);
      entry.get_to("why", rollback.why);
      if (rollback.skip.step < 0 || rollback.skip.begin < 0 || rollback.skip.end < rollback.skip.begin ||
          rollback.skip.end > kMostSamples || rollback.at < rollback.skip.step)
        throw JsonError("a rollback is out of range");
    }
  } catch (const JsonError& error) {
    throw Error("ckpt.rollbacks", Blame::storage, fmt::format("'{}' is damaged: {}", path, error.what()), kHint);
  }
  return rollbacks;
}

std::string read_rollbacks(const std::string& checkpoint_dir) {
  const std::string path = rollbacks_path(checkpoint_dir);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) return {};
  std::string text = read_user_file(path, kMaxBytes);
  if (text.empty()) throw Error("ckpt.rollbacks", Blame::storage, fmt::format("'{}' is empty", path), kHint);
  return text;
}

std::vector<data::Skip> skips_of(const std::vector<Rollback>& rollbacks, const std::string& source,
                                 std::uint64_t seed) {
  std::vector<data::Skip> skips;
  for (const Rollback& rollback : rollbacks) {
    std::erase_if(skips, [&](const data::Skip& skip) { return skip.step >= rollback.skip.step; });
    if (rollback.source == source && rollback.seed == seed) skips.push_back(rollback.skip);
  }
  return skips;
}

void require_all(const std::string& checkpoint_dir, const std::vector<Rollback>& rollbacks) {
  for (const ckpt::Found& found : ckpt::list(checkpoint_dir)) {
    if (found.condition != ckpt::Condition::complete || found.manifest->data.rollbacks <= std::ssize(rollbacks))
      continue;
    throw Error("ckpt.rollbacks", Blame::user,
                fmt::format("{} was saved after {}, and '{}' lists {}", found.path,
                            plural(found.manifest->data.rollbacks, "rollback"), rollbacks_path(checkpoint_dir),
                            rollbacks.size()),
                fmt::format("{}: put it back, copy it along with checkpoints, or use checkpoint.load", kHint));
  }
}

bool is_left(const std::vector<Rollback>& rollbacks, const ckpt::Manifest& manifest) {
  for (std::size_t i = 0; i < rollbacks.size(); ++i) {
    if (manifest.data.rollbacks <= static_cast<std::int64_t>(i) && manifest.step > rollbacks[i].skip.step) return true;
  }
  return false;
}

// Whatever is committed sets later ones aside (ckpt::commit), so all above one that was left were left, too.
std::string set_left_aside(const std::string& checkpoint_dir, const std::vector<Rollback>& rollbacks) {
  if (rollbacks.empty()) return "";
  for (const ckpt::Found& found : ckpt::list(checkpoint_dir)) {
    const bool committed = found.condition == ckpt::Condition::complete;
    if (committed && is_left(rollbacks, *found.manifest)) return ckpt::set_aside(checkpoint_dir, found.step);
  }
  return "";
}

}  // namespace ms::train
