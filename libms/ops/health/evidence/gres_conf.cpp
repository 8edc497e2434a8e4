#include "health/evidence/gres_conf.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/number.h"
#include "slurm/hostlist.h"
#include "slurm/job_env.h"

namespace ms::health {
namespace {

// Keys in lower case.
std::map<std::string, std::string> fields(const slurm::ConfLine& line) {
  std::map<std::string, std::string> result;
  for (const std::string& word : line.words) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) result[slurm::lower_case(word.substr(0, equals))] = word.substr(equals + 1);
  }
  return result;
}

// Paths with brackets in their last part, separated by commas. nullopt: not understood.
std::optional<std::vector<std::string>> expand_files(std::string_view text) {
  std::vector<std::string> files;
  while (!text.empty()) {
    std::size_t end = 0;
    for (int depth = 0; end < text.size() && (text[end] != ',' || depth > 0); ++end) {
      if (text[end] == '[') ++depth;
      if (text[end] == ']') --depth;
    }
    const std::string_view path = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t name = path.rfind('/') + 1;
    const auto names = slurm::expand_hostlist(path.substr(name));
    if (name == 0 || !names || names->empty()) return std::nullopt;
    for (const std::string& one : *names) files.push_back(std::string(path.substr(0, name)) + one);
  }
  return files;
}

bool is_for(const std::map<std::string, std::string>& line, std::string_view node) {
  const auto list = line.find("nodename");
  if (list == line.end()) return true;
  const auto nodes = slurm::expand_hostlist(list->second);
  return nodes && std::find(nodes->begin(), nodes->end(), node) != nodes->end();
}

// "8", or "4K" for 4096. nullopt: not understood.
std::optional<std::int64_t> parse_count(std::string_view text) {
  constexpr std::string_view kSuffixes = "kmgtp";  // powers of 1024
  int shift = 0;
  if (!text.empty()) {
    const std::size_t power = kSuffixes.find(slurm::lower_case(text.substr(text.size() - 1)));
    if (power != std::string_view::npos) {
      shift = 10 * (static_cast<int>(power) + 1);
      text.remove_suffix(1);
    }
  }
  const std::int64_t value = whole_number<std::int64_t>(text).value_or(-1);
  const bool fits = value >= 0 && value <= std::numeric_limits<std::int64_t>::max() >> shift;
  return fits ? std::optional(value << shift) : std::nullopt;
}

std::optional<GresLine> parse_line(const slurm::ConfLine& words, std::string_view node) {
  auto line = fields(words);
  if (!line.contains("name") || !is_for(line, node)) return std::nullopt;
  GresLine gres{.name = slurm::lower_case(line["name"]), .type = line["type"], .files = {}, .count = {}};
  const bool is_one_of_several_files = line.contains("multiplefiles");
  for (const char* key : {"file", "multiplefiles"}) {
    if (!line.contains(key)) continue;
    const auto files = expand_files(line[key]);
    if (!files) return std::nullopt;
    gres.files = *files;
  }
  // Count= of these two is the number of shares of a GPU.
  if (is_one_of_several_files || gres.name == "mps" || gres.name == "shard") return gres;
  if (const auto count = line.find("count"); count != line.end()) {
    gres.count = parse_count(count->second);
    if (!gres.count) return std::nullopt;
  }
  return gres;
}

}  // namespace

std::optional<GresConf> read_gres_conf(const Sysroot& root, const std::string& path, std::string_view node) {
  const auto text = path.starts_with('/') ? root.read(path) : std::nullopt;
  if (!text) return std::nullopt;
  return parse_gres_conf(*text, node,
                         [&](const std::string& name) { return root.read(slurm::included_path(path, name)); });
}

GresConf parse_gres_conf(std::string_view text, std::string_view node, const slurm::ReadIncluded& read) {
  GresConf conf;
  for (const slurm::ConfLine& words : slurm::conf_lines(text, read)) {
    if (auto gres = parse_line(words, node)) conf.lines.push_back(std::move(*gres));
    const auto line = fields(words);
    const auto detect = line.find("autodetect");
    if (detect != line.end() && is_for(line, node)) conf.autodetect = slurm::lower_case(detect->second) != "off";
  }
  return conf;
}

std::string node_name(const Sysroot& root) {
  if (root.is_real()) return slurm::this_node();
  const std::string name = root.read("/proc/sys/kernel/hostname").value_or("");
  return name.substr(0, name.find('.'));
}

}  // namespace ms::health
