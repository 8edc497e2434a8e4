#include "health/repair/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"

namespace ms::health {
namespace {

constexpr std::string_view kRemoved = "(removed)";
constexpr const char* kSlurmdLog = "slurmd.log";
constexpr std::size_t kBlock = 512;
constexpr std::string_view kWordEnds(" \t\0\\\"',;", 8);

constexpr std::string_view kSecretNames[] = {"token",     "passw",      "passphrase",  "secret",        "credential",
                                             "apikey",    "api_key",    "api-key",     "access_key",    "authkey",
                                             "accesskey", "accountkey", "webhook",     "authorization", "signature",
                                             "cookie",    "pwd",        "private_key", "auth_key"};
// Whole names, and the ends of longer ones behind '_' or '-'.
constexpr std::string_view kSecretEnds[] = {"key", "pass", "sig", "pin", "auth"};
constexpr std::string_view kTokens[] = {
    "ghp_",      "gho_",    "ghs_",  "ghu_",  "ghr_", "github_pat_", "glpat-", "glrt-", "hf_",   "xoxb-",
    "xoxp-",     "xoxa-",   "xoxs-", "xapp-", "sk-",  "sk_live_",    "nvapi-", "npm_",  "pypi-", "AIza",
    "dckr_pat_", "dop_v1_", "AKIA",  "ASIA",  "eyJ",  "ya29.",       "hvs.",   "r8_",   "gsk_"};
constexpr std::string_view kHooks[] = {"hook", "/services/T", "/api/alert"};
// Words behind which a program takes a secret, and whether it is what follows the first ':' alone.
struct OptionRow {
  std::string_view program, option;
  bool is_pair;
};
constexpr OptionRow kOptions[] = {{"curl", "-u", true},        {"curl", "--user", true},   {"curl", "-U", true},
                                  {"ipmitool", "-P", false},   {"sshpass", "-p", false},   {"mysql", "-p", false},
                                  {"ldapsearch", "-w", false}, {"docker", "-p", false},    {"podman", "-p", false},
                                  {"smbclient", "-U", true},   {"redis-cli", "-a", false}, {"wandb", "login", false}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\0' || c == '\\'; }  // "\\" as within JSON

bool names_a_secret(std::string_view name) {
  const std::string small = lower(name);
  const auto within = [&](std::string_view word) { return small.find(word) != std::string::npos; };
  const auto is_end = [&](std::string_view word) {
    return small == word || small == "--" + std::string(word) || small.ends_with("_" + std::string(word)) ||
           small.ends_with("-" + std::string(word));
  };
  return std::ranges::any_of(kSecretNames, within) || std::ranges::any_of(kSecretEnds, is_end);
}

// Reads a line from left to right; what is secret goes out as kRemoved.
class Line {
 public:
  explicit Line(std::string_view line) : line_(line) {}

  std::string clean() {
    while (at_ < line_.size()) {
      if (option() || url() || known_token() || scheme() || secret_value()) continue;
      if (is_name_char(line_[at_])) {
        const std::size_t begin = at_;
        while (at_ < line_.size() && is_name_char(line_[at_])) out_ += line_[at_++];
        const std::string_view word = line_.substr(begin, at_ - begin);
        const auto row = std::ranges::find_if(kOptions, [&](const auto& each) { return each.program == word; });
        if (row != std::end(kOptions)) program_ = row->program;
      } else {
        out_ += line_[at_++];
      }
    }
    return out_;
  }

 private:
  std::string_view rest() const { return line_.substr(at_); }

  // Users write such lines: no part of one is read twice. `from` only grows.
  std::size_t end_of_word(std::size_t from) {
    if (from > end_of_word_ || from == 0) end_of_word_ = std::min(line_.find_first_of(kWordEnds, from), line_.size());
    return end_of_word_;
  }
  bool has_hook(std::size_t from, std::size_t end) {
    if (end != hook_end_) {
      hook_end_ = end;
      hook_ = -1;
      for (const std::string_view hook : kHooks) {
        const std::size_t found = line_.substr(from, end - from).rfind(hook);
        if (found != std::string_view::npos) hook_ = std::max(hook_, static_cast<std::ptrdiff_t>(from + found));
      }
    }
    return hook_ >= static_cast<std::ptrdiff_t>(from);
  }

  // "curl -u user:password", "ipmitool -P password", "sshpass -ppassword"
  bool option() {
    if (program_.empty() || at_ == 0 || line_[at_ - 1] != ' ') return false;
    for (const auto& row : kOptions) {
      if (row.program != program_ || !rest().starts_with(row.option)) continue;
      std::size_t value = at_ + row.option.size();
      while (value < line_.size() && is_blank(line_[value])) ++value;
      if (value == at_ + row.option.size() && row.option.size() > 2) continue;
      const std::size_t end = end_of_word(value);
      const std::size_t colon = line_.substr(0, end).find(':', value);
      if (value >= end || (row.is_pair && colon == std::string_view::npos)) continue;
      out_ += line_.substr(at_, (row.is_pair ? colon + 1 : value) - at_);
      out_ += kRemoved;
      at_ = end;
      return true;
    }
    return false;
  }

  // "scheme://user:password@host/path", also without the scheme
  bool url() {
    const std::size_t end = end_of_word(at_);
    if (slashes_ < at_ || at_ == 0) slashes_ = std::min(line_.find("//", at_), line_.size());
    if (slashes_ + 2 > end) return false;
    const std::string_view before = line_.substr(at_, slashes_ - at_);
    if (!before.empty() && !std::ranges::all_of(before.substr(0, before.size() - 1), is_name_char)) return false;
    if (!before.empty() && before.back() != ':') return false;
    const std::size_t host = slashes_ + 2, path = std::min(line_.substr(0, end).find_first_of("/?#", host), end);
    const std::size_t user = line_.substr(host, path - host).rfind('@');
    out_ += line_.substr(at_, host - at_);
    if (user != std::string_view::npos) out_ += fmt::format("{}@", kRemoved);
    const std::size_t name = user == std::string_view::npos ? host : host + user + 1;
    out_ += line_.substr(name, path - name);
    at_ = path;  // a query may carry a token
    if (!has_hook(slashes_, end)) return true;
    out_ += fmt::format("/{}", kRemoved);
    at_ = end;
    return true;
  }

  bool known_token() {
    for (const std::string_view token : kTokens) {
      constexpr std::size_t kLeast = 16;
      if (token.front() != line_[at_] || !rest().starts_with(token)) continue;
      const std::size_t end = end_of_word(at_);
      if (end - at_ < kLeast) continue;
      out_ += kRemoved;
      at_ = end;
      return true;
    }
    return false;
  }

  // "Bearer eyJ...", "Basic dXNlcjp..."
  bool scheme() {
    if (line_[at_] != 'b' && line_[at_] != 'B') return false;
    const std::string head = lower(rest().substr(0, 7));
    const std::size_t length = head == "bearer " ? 7 : head.starts_with("basic ") ? 6 : 0;
    if (length == 0) return false;
    out_ += line_.substr(at_, length);
    out_ += kRemoved;
    at_ = end_of_word(at_ + length);
    return true;
  }

  // NAME=value, name: value, "name": "value", --name value
  bool secret_value() {
    std::size_t end = at_;
    while (end < line_.size() && is_name_char(line_[end])) ++end;
    const std::string_view name = line_.substr(at_, end - at_);
    if (name.empty() || !names_a_secret(name)) return false;
    std::size_t value = end;
    const bool option = name.starts_with("--");
    while (value < line_.size() && (is_blank(line_[value]) || line_[value] == '"' || line_[value] == '\'')) ++value;
    const bool assigns = value < line_.size() && (line_[value] == '=' || line_[value] == ':');
    if (!assigns && !option) return false;
    if (assigns) ++value;
    while (value < line_.size() && is_blank(line_[value])) ++value;
    if (value >= line_.size()) return false;
    const char quote = line_[value];
    const bool quoted = quote == '"' || quote == '\'';
    // A header's value, and what stands in quotes, may have blanks.
    std::size_t stop = quoted ? line_.find(quote, value + 1) : end_of_word(value);
    if (stop == std::string_view::npos) stop = line_.size();
    const std::string head = lower(line_.substr(value, 7));
    if (!quoted && assigns && head == "bearer ") stop = end_of_word(value + 7);
    if (!quoted && assigns && head.starts_with("basic ")) stop = end_of_word(value + 6);
    out_ += line_.substr(at_, value - at_);
    if (quoted) out_ += quote;
    out_ += kRemoved;
    at_ = stop;
    return true;
  }

  std::string_view line_;
  std::size_t at_ = 0;
  std::size_t end_of_word_ = 0, slashes_ = 0;  // the next of each, as far as it has been looked for
  std::size_t hook_end_ = std::string_view::npos;
  std::string_view program_;  // the last one that takes a secret
  std::ptrdiff_t hook_ = -1;  // the last one in the word that ends there
  std::string out_;
};

}  // namespace

std::string slurmd_log_of(const slurm::Config& config, const slurm::Node& node) {
  const auto found = config.find("SlurmdLogFile");
  std::string path = found == config.end() ? "" : found->second;
  const std::pair<std::string_view, std::string> names[] = {{"%h", node.host.substr(0, node.host.find('.'))},
                                                            {"%n", node.name}};
  for (const auto& [pattern, name] : names) {
    const std::size_t at = path.find(pattern);
    if (at != std::string::npos) path.replace(at, pattern.size(), name);
  }
  const auto is_plain = [](char c) { return is_name_char(c) || c == '/'; };  // what ssh hands on as it is
  return path.starts_with('/') && std::ranges::all_of(path, is_plain) ? path : "";
}

std::vector<EvidenceRow> evidence_rows(const std::string& nvidia_smi, const std::string& slurmd_log) {
  const EvidenceRow slurmd =
      slurmd_log.empty()
          ? EvidenceRow{kSlurmdLog, "/usr/bin/journalctl", {"--no-pager", "--lines", "2000", "--unit", "slurmd"}}
          : EvidenceRow{kSlurmdLog, "/usr/bin/tail", {"--lines", "2000", slurmd_log}};
  return {{"report.json", "", {"run", "--json"}},
          {"history.jsonl", "", {"history", "--json"}},
          {"facts.json", "", {"facts"}},
          {"kernel.log", "/usr/bin/dmesg", {"--time-format", "iso"}},
          slurmd,
          {"gpus.txt", nvidia_smi, {"-q"}}};
}

std::string without_secrets(std::string_view text) {
  std::string result;
  bool in_key = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    in_key = in_key ||
             (line.find("-----BEGIN") != std::string_view::npos && line.find("PRIVATE KEY") != std::string_view::npos);
    result += in_key ? std::string(kRemoved) : Line(line).clean();
    if (line.find("-----END") != std::string_view::npos) in_key = false;
    if (end < text.size()) result += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string tar_file(const std::string& name, std::string_view text, double wall_s) {
  const std::string body = without_secrets(text);
  std::array<char, kBlock> header{};
  const auto put = [&](std::size_t at, std::string_view value) {
    std::copy(value.begin(), value.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  MS_ASSERT(name.size() < 100, "the name fits into a header of ustar");
  put(0, name);
  put(100, "0000600");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", body.size()));
  put(136, fmt::format("{:011o}", static_cast<std::uint64_t>(std::max(0.0, wall_s))));
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::string file(header.begin(), header.end());
  file += body;
  file.resize((file.size() + kBlock - 1) / kBlock * kBlock);
  return file;
}

std::string tar_end() { return std::string(2 * kBlock, '\0'); }

}  // namespace ms::health
