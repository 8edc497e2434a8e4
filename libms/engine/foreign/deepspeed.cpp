// DeepSpeed: files of torch.save, one for each rank of the optimizer and of the model; universal checkpoints have one
// for each state of each parameter.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/number.h"
#include "base/text.h"
#include "foreign/checkpoint.h"

namespace ms::foreign {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModel = "_model_states.pt", kOptimizer = "_optim_states.pt", kZeroRank = "zero_pp_rank_";

bool is_file_of_deepspeed(const std::string& name) {
  return (name.ends_with(kModel) || name.ends_with("-model_states.pt") || name.ends_with(kOptimizer)) &&
         (name.find("mp_rank_") != std::string::npos || name.starts_with("layer_"));
}

// Whether it is what file systems and notebooks put into directories: .snapshot, .ipynb_checkpoints, @eaDir.
bool is_of_system(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name.starts_with('@');
}

std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_file_of_deepspeed(name)) names.push_back(name);
  }
  const fs::path universal = fs::path(path) / "zero";
  if (!names.empty() && fs::is_directory(universal, error)) {
    for (fs::recursive_directory_iterator at(universal, error), end; !error && at != end; at.increment(error)) {
      if (is_of_system(at->path())) {
        at.disable_recursion_pending();
        continue;
      }
      if (at->path().extension() == ".pt") names.push_back(at->path().lexically_relative(path).string());
    }
  }
  std::ranges::sort(names);
  return names;
}

// The ranks that files of ZeRO name: "zero_pp_rank_3_mp_rank_00_optim_states.pt", by what stands behind the rank.
void check_ranks(Checkpoint& to, const std::vector<std::string>& names, std::int64_t world) {
  std::map<std::string, std::set<std::int64_t>> ranks;
  for (const std::string& name : names) {
    const std::size_t at = name.find(kZeroRank);
    if (at == std::string::npos) continue;
    std::string_view rest = std::string_view(name).substr(at + kZeroRank.size());
    const auto rank = take_number<std::int64_t>(rest);
    if (rank >= 0) ranks[fmt::format("{}*{}", name.substr(0, at), rest)].insert(*rank);
  }
  for (const auto& [kind, of_kind] : ranks) {
    const std::int64_t count = std::max(world, *of_kind.rbegin() + 1);
    if (std::ssize(of_kind) == count) continue;
    to.problems.push_back({"missing-file", fmt::format("of {} {} of {} ranks are there", kind, of_kind.size(), count)});
  }
}

// Each parameter of a universal checkpoint has a directory, with its weights and usually the same states as all others.
void check_universal(Checkpoint& to) {
  std::map<std::string, std::set<std::string>> states;
  std::set<std::string> all;
  std::error_code error;
  const fs::path universal = fs::path(to.path) / "zero";
  for (fs::directory_iterator at(universal, error), end; !error && at != end; at.increment(error)) {
    if (is_of_system(at->path()) || !fs::is_directory(at->path(), error)) continue;
    std::set<std::string>& of_one = states[at->path().filename().string()];
    for (fs::directory_iterator file(at->path(), error), last; !error && file != last; file.increment(error)) {
      if (!is_of_system(file->path())) of_one.insert(file->path().filename().string());
    }
    all.insert(of_one.begin(), of_one.end());
  }
  for (const auto& [parameter, of_one] : states) {
    for (const std::string& state : all) {
      if (of_one.contains(state)) continue;
      (state == "fp32.pt" ? to.problems : to.doubts)
          .push_back({"missing-file", fmt::format("zero/{} has no {}, as other parameters have",
                                                  plain_text(parameter, 200), plain_text(state, 80))});
    }
  }
}

}  // namespace

bool is_deepspeed(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !files_of(path).empty();
}

void open_deepspeed(Checkpoint& to) {
  const std::vector<std::string> names = files_of(to.path);
  for (const std::string& name : names) {
    std::string prefix = name.substr(0, name.size() - 3);  // without ".pt"
    std::ranges::replace(prefix, '/', '.');
    add_torch_file(to, name, prefix + ".");
  }
  if (std::ranges::none_of(names, [](const std::string& name) { return name.ends_with("model_states.pt"); })) {
    to.problems.push_back({"missing-file", "there is no file *model_states.pt"});
  }
  std::int64_t world = 0;
  for (const auto& [key, value] : to.facts) {
    if (key.ends_with(".dp_world_size")) world = leading_number<std::int64_t>(value).value_or(world);
  }
  check_ranks(to, names, world);
  check_universal(to);
}

}  // namespace ms::foreign
