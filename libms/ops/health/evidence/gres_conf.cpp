#include "health/evidence/gres_conf.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <climits>
#include <map>

#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-7]": keys in lower case.
std::map<std::string, std::string> fields(std::string_view line) {
  std::map<std::string, std::string> result;
  for (const std::string& word : split(line, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) result[lower(word.substr(0, equals))] = word.substr(equals + 1);
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

std::optional<GresLine> parse_line(std::string_view text, std::string_view node) {
  auto line = fields(text);
  if (!line.contains("name") || !is_for(line, node)) return std::nullopt;
  GresLine gres{.name = lower(line["name"]), .type = line["type"], .files = {}, .count = {}};
  if (const auto file = line.find("file"); file != line.end()) {
    const auto files = expand_files(file->second);
    if (!files) return std::nullopt;
    gres.files = *files;
  }
  if (const auto count = line.find("count"); count != line.end()) {
    const std::string& digits = count->second;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
    gres.count = value;
  }
  return gres;
}

}  // namespace

std::vector<GresLine> parse_gres_conf(std::string_view text, std::string_view node) {
  std::vector<GresLine> lines;
  std::string joined;  // a line and those that continue it
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.remove_suffix(1);
    joined += line;
    if (goes_on && !text.empty()) continue;
    std::replace(joined.begin(), joined.end(), '\t', ' ');
    if (auto gres = parse_line(trim(joined), node)) lines.push_back(std::move(*gres));
    joined.clear();
  }
  return lines;
}

std::string node_name(const Sysroot& root) {
  std::string name = root.read("/proc/sys/kernel/hostname").value_or("");
  if (name.empty()) {
    std::array<char, HOST_NAME_MAX + 1> host{};
    if (::gethostname(host.data(), host.size() - 1) == 0) name = host.data();
  }
  return name.substr(0, name.find('.'));
}

}  // namespace ms::health
