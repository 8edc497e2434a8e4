#include "ckpt/names.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/number.h"
#include "ckpt/directory.h"

namespace ms::ckpt {
namespace {

// A number as we print it: no sign, no leading zeros.
std::optional<std::int64_t> number_from(std::string_view text) {
  const auto number = whole_number<std::int64_t>(text);
  return number >= 0 && std::to_string(*number) == text ? number : std::nullopt;
}

}  // namespace

std::string step_name(std::int64_t step) {
  MS_ASSERT(step >= 0, "a checkpoint of step {}", step);
  return fmt::format("step-{:08}", step);
}

std::optional<std::int64_t> step_from(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::string_view digits = name.substr(kPrefix.size());
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.empty() ? 0 : digits.size() - 1));
  const std::optional<std::int64_t> step = number_from(digits);
  if (!step || step_name(*step) != name) return std::nullopt;
  return step;
}

Name parse_name(std::string_view name) {
  struct Form {
    std::string_view prefix;
    NameKind kind;
    bool step, number;
    std::string_view suffix;
  };
  constexpr Form kForms[] = {
      {"", NameKind::step, true, false, ""},           {"", NameKind::pin, true, false, ".pin"},
      {"saving-", NameKind::saving, true, false, ""},  {"deleting-", NameKind::deleting, true, true, ""},
      {"damaged-", NameKind::damaged, true, true, ""}, {"set-aside-", NameKind::set_aside, false, true, ""},
  };
  if (name.starts_with(kScratchPrefix)) return {.kind = NameKind::scratch};
  for (const Form& form : kForms) {
    if (!name.starts_with(form.prefix) || !name.ends_with(form.suffix)) continue;
    std::string_view rest = name.substr(form.prefix.size());
    rest.remove_suffix(std::min(rest.size(), form.suffix.size()));
    Name result{.kind = form.kind};
    if (form.number) {
      const std::size_t dash = form.step ? rest.rfind('-') : 0;
      if (dash == std::string_view::npos) continue;
      const auto number = number_from(rest.substr(form.step ? dash + 1 : 0));
      if (!number || *number < 1) continue;
      result.number = *number;
      rest = rest.substr(0, dash);
    }
    if (form.step) {
      const auto step = step_from(rest);
      if (!step) continue;
      result.step = *step;
    }
    return result;
  }
  return {};
}

std::string path_in(const std::string& dir, std::string_view name) { return fmt::format("{}/{}", dir, name); }

std::vector<std::string> names_in(const std::string& dir) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error == std::errc::no_such_file_or_directory) return {};
  if (error) {
    throw Error("ckpt.list", Blame::storage,
                fmt::format("cannot list the checkpoints in '{}': {}", dir, errno_text(error.value())));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ms::ckpt
