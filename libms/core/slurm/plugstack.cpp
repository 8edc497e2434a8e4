#include "slurm/plugstack.h"

#include <algorithm>

#include "base/number.h"
#include "base/text.h"
#include "slurm/conf_lines.h"

namespace ms::slurm {
namespace {

constexpr std::string_view kPluginName = "ms_spank.so";
constexpr unsigned kLongestDeadline_s = 600;  // as the plugin has it

std::vector<std::string> words_of(std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  std::replace(line.begin(), line.end(), '\t', ' ');
  std::vector<std::string> words = split(line, ' ');
  std::erase(words, "");
  return words;
}

// 0: the plugin would not take it.
double deadline_of(std::string_view text) {
  const unsigned seconds = whole_number<unsigned>(text).value_or(0);
  return seconds <= kLongestDeadline_s ? seconds : 0;
}

}  // namespace

std::vector<PlugstackLine> parse_plugstack(std::string_view text) {
  std::vector<PlugstackLine> stack;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2) continue;
    if (words[0] == "include") {
      stack.push_back({.include = words[1], .path = {}, .arguments = {}});
    } else if (words[0] == "required" || words[0] == "optional") {
      stack.push_back({.include = {},
                       .required = words[0] == "required",
                       .path = words[1],
                       .arguments = {words.begin() + 2, words.end()}});
    }
  }
  return stack;
}

std::string plugstack_path(const Config& config) {
  const auto value_or = [&](const char* key, const char* otherwise) {
    const auto found = config.find(key);
    return found == config.end() || found->second.empty() ? std::string(otherwise) : found->second;
  };
  return included_path(value_or("SLURM_CONF", "/etc/slurm/slurm.conf"), value_or("PlugStackConfig", "plugstack.conf"));
}

std::vector<std::string> plugin_files(const std::string& path, const Config& config) {
  if (path.starts_with('/')) return {path};
  std::vector<std::string> files;
  const auto directories = config.find("PluginDir");
  for (const std::string& directory : split(directories == config.end() ? "" : directories->second, ':'))
    if (directory.starts_with('/')) files.push_back(directory + "/" + path);
  return files;
}

std::optional<PluginLine> our_plugin(const std::vector<PlugstackLine>& stack) {
  constexpr std::string_view kProgram = "program=", kDeadline = "deadline=", kConfig = "config=";
  for (const PlugstackLine& line : stack) {
    if (line.path.substr(line.path.rfind('/') + 1) != kPluginName) continue;
    PluginLine plugin{.required = line.required, .path = line.path, .program = {}, .policy = {}};
    for (const std::string& argument : line.arguments) {
      if (argument.starts_with(kProgram)) plugin.program = argument.substr(kProgram.size());
      if (argument.starts_with(kConfig)) plugin.policy = argument.substr(kConfig.size());
      if (argument.starts_with(kDeadline)) plugin.deadline_s = deadline_of(argument.substr(kDeadline.size()));
    }
    return plugin;
  }
  return std::nullopt;
}

}  // namespace ms::slurm
