#include "health/evidence/mounts.h"

#include <algorithm>

#include "base/text.h"

namespace ms::health {
namespace {

// "\040" and its like.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 3);
    if (text[i] == '\\' && digits.size() == 3 && digits.find_first_not_of("01234567") == std::string_view::npos) {
      result += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool has_option(std::string_view options, std::string_view wanted) { return contains(split(options, ','), wanted); }

std::vector<std::string> sorted_options(std::string_view text) {
  std::vector<std::string> options = split(text, ',');
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  return options;
}

}  // namespace

std::vector<Mount> parse_mountinfo(std::string_view text) {
  std::vector<Mount> mounts;
  for (const std::string& line : split(text, '\n')) {
    // 36 35 98:0 /root /mount/point rw,noatime [optional...] - type source super-options
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin() + std::min<std::ptrdiff_t>(6, std::ssize(words)), words.end(), "-");
    if (words.end() - dash < 4) continue;
    mounts.push_back({.path = unescape(words[4]),
                      .type = *(dash + 1),
                      .source = unescape(*(dash + 2)),
                      .device = words[2],
                      .read_only = has_option(words[5], "ro"),
                      .filesystem_read_only = has_option(*(dash + 3), "ro"),
                      .options = sorted_options(words[5] + "," + *(dash + 3))});
  }
  return mounts;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::vector<ExpectedMount> required_mounts(const Evidence& evidence) {
  constexpr std::string_view kWritable = ":rw";
  constexpr std::string_view kReadOnly = ":ro";
  std::vector<ExpectedMount> required;
  for (std::string path : evidence.policy().expect.mounts) {
    if (!path.starts_with('/')) continue;
    const Access access = path.ends_with(kWritable)   ? Access::writable
                          : path.ends_with(kReadOnly) ? Access::read_only
                                                      : Access::any;
    if (access != Access::any) path.resize(path.size() - kWritable.size());
    required.push_back({without_slash(path), access});
  }
  return required;
}

std::vector<std::string> expected_mounts(const Evidence& evidence) {
  std::vector<std::string> paths;
  for (ExpectedMount& mount : required_mounts(evidence)) paths.push_back(std::move(mount.path));
  return paths;
}

const Mount* mounted_at(const std::vector<Mount>& mounts, std::string_view path) {
  const auto found = std::find_if(mounts.rbegin(), mounts.rend(), [&](const Mount& m) { return m.path == path; });
  return found == mounts.rend() ? nullptr : &*found;
}

std::vector<FstabLine> read_fstab(const Sysroot& root) {
  std::vector<FstabLine> lines;
  const std::string text = root.read("/etc/fstab").value_or("");
  for (std::string line : split(text, '\n')) {
    std::replace(line.begin(), line.end(), '\t', ' ');
    std::vector<std::string> words = split(line, ' ');
    std::erase(words, "");
    if (words.size() < 4 || words[0].starts_with('#') || !words[1].starts_with('/')) continue;
    lines.push_back({words[0], without_slash(words[1]), words[2], split(words[3], ',')});
  }
  return lines;
}

}  // namespace ms::health
