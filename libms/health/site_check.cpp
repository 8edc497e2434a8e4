#include "health/site_check.h"

#include <glob.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "base/version.h"
#include "health/sysroot.h"

namespace ms::health {
namespace {

// spank/plugin.cpp keeps a text of this form in its file, because a plugin of another Slurm cannot be loaded to be
// asked.
constexpr std::string_view kMark = "ms_spank built for slurm ";
constexpr std::size_t kMaxPlugstackBytes = 1 << 20;
constexpr int kMaxIncludeDepth = 8;

std::string read_or_empty(const std::string& path) {
  const Sysroot root;
  return root.read(path, kMaxPlugstackBytes).value_or("");
}

// plugstack.conf with what its "include" lines name.
std::string with_includes(const std::string& path, int depth) {
  std::string text;
  for (const std::string& line : split(read_or_empty(path), '\n')) {
    const std::vector<std::string> words = wrap(line, 0);
    if (words.size() != 2 || words[0] != "include") {
      text += line + "\n";
      continue;
    }
    if (depth == kMaxIncludeDepth) continue;
    const std::string pattern = words[1].starts_with('/') ? words[1] : parent_directory(path) + "/" + words[1];
    glob_t found{};
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
      for (std::size_t i = 0; i < found.gl_pathc; ++i) text += with_includes(found.gl_pathv[i], depth + 1);
    }
    ::globfree(&found);
  }
  return text;
}

std::string plugin_in(const std::string& plugstack) {
  for (const std::string& line : split(plugstack, '\n')) {
    const std::vector<std::string> words = wrap(line, 0);
    if (words.size() >= 2 && !words[0].starts_with('#') && words[1].ends_with("ms_spank.so")) return words[1];
  }
  return {};
}

}  // namespace

unsigned plugin_version_of(const std::string& path) {
  const std::string bytes = Sysroot().read(path, std::size_t{16} << 20).value_or("");
  const std::size_t mark = bytes.find(kMark);
  if (mark == std::string::npos) return 0;
  return static_cast<unsigned>(std::strtoul(bytes.c_str() + mark + kMark.size(), nullptr, 16));
}

slurm::SiteFacts site_facts(const Policy& policy, const slurm::Commands& commands) {
  slurm::SiteFacts facts{.config = commands.config(), .prolog_deadline_s = policy.prolog.deadline_s};
  facts.ms_version = kVersion;
  const auto stack = facts.config.find("PlugStackConfig");
  if (stack != facts.config.end()) facts.plugstack = with_includes(stack->second, 0);
  facts.plugin_path = plugin_in(facts.plugstack);
  if (!facts.plugin_path.empty()) facts.plugin_version = plugin_version_of(facts.plugin_path);
  return facts;
}

}  // namespace ms::health
