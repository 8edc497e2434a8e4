#include "health/commands/manual.h"

#include <cctype>
#include <iterator>
#include <utility>

#include "base/man.h"
#include "base/text.h"
#include "health/checks/registry.h"
#include "health/commands/causes.h"

namespace ms::health {
namespace {

constexpr std::string_view kLevels[] = {
    "Passive checks: they read a few files and counters, and query the driver once. Run as root in every prolog.",
    "Active checks: they load the node for seconds. Run as the user in a job step, or by hand, on an idle node. Checks "
    "that load different parts of the node run in parallel.",
    "Active checks that run only by hand: soak tests for the time given with --soak, and a disk test in the directory "
    "given with --directory."};

std::string facts(const Check& check) {
  std::string text =
      fmt::format("Blames the {}. Aborted after {}, with {} as the result.", to_string(check.blame),
                  format_duration(check.deadline_s),
                  check.on_hang ? fmt::format("a {} finding", to_string(*check.on_hang)) : "no finding (not measured)");
  if (!check.needs.empty()) text += fmt::format(" Needs {}.", check.needs);
  text += fmt::format(" Tested on {}.", proof(check));
  if (const auto names = to_strings(check.takes); !names.empty()) {
    text += fmt::format(" Uses the {} exclusively: other checks that use it wait.", fmt::join(names, " and the "));
  }
  if (check.soaks) text += " The soak time is added to this limit.";
  if (check.user_can_cause) text += " A user's job can cause it, so it never drains a node.";
  if (const std::string causes = causes_of(check.code); !causes.empty()) text += " " + causes;
  return text;
}

std::string sentence(std::string_view half) {
  std::string text(half);
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

std::string paragraphs(const Check& check) {
  return fmt::format("{}\n\n{}\n\n{}\n\nRemedy: {}", sentence(check.summary), check.explain, facts(check),
                     check.remedy);
}

std::string policy_text(std::string (*form)(const man::ConfigPage&, std::span<const ConfigRow>)) {
  Policy policy;
  ConfigSchema schema;
  bind(schema, policy);
  return form(
      {.name = "ms-diag.toml",
       .summary = "site policy for ms-diag and its Slurm plugin",
       .description =
           "The policy defines whether findings may drain nodes, which findings, how many nodes, and what a healthy "
           "node of the site looks like. Programs that run as root read /etc/ms/ms-diag.toml, or the file named in "
           "plugstack.conf. They accept it only if it belongs to root and no one else can write it; otherwise they do "
           "nothing and log the reason. The file is read at every start, so changes need no restart. ms-diag "
           "--sample-policy prints a file with every key commented out, which is in mode observe.",
       .see_also = {"ms-diag(1)", "ms-checks(7)", "ms_spank(8)"}},
      schema.reference());
}

}  // namespace

std::string checks_page(const std::vector<Check>& checks) {
  man::TopicPage page{
      .name = "ms-checks",
      .summary = "checks of ms-diag, and what to do about their findings",
      .description =
          "A check passes, warns, is critical, is skipped with a reason, or is broken. Broken means that the check "
          "itself failed; it is reported but does not count against the node. A check that exceeds its time limit is "
          "aborted. This is a finding if only hardware, a driver or a file system can be the cause. A check that only "
          "computes is skipped as not measured instead, since slowness is not a fault of the node.\n\n"
          "The drain reason of a node starts with ms-diag: and the code of the worst finding, so that sinfo -R shows "
          "it in its 20 characters. Only codes in act.allow of ms-diag.toml(5) drain a node, and never a finding that "
          "a user's job can cause.",
      .see_also = {"ms-diag(1)", "ms-diag.toml(5)", "ms_spank(8)"}};
  for (std::size_t level = 1; level <= std::size(kLevels); ++level) {
    man::TopicSection section{.title = fmt::format("Level {}", level), .text = std::string(kLevels[level - 1])};
    for (const Check& check : checks) {
      if (std::cmp_equal(check.level, level)) section.items.push_back({std::string(check.code), paragraphs(check)});
    }
    page.sections.push_back(std::move(section));
  }
  return man::topic_page(page);
}

std::string policy_page() { return policy_text(man::config_page); }
std::string sample_policy() { return policy_text(man::sample_config); }

std::string explain(const std::vector<Check>& checks, std::string_view code) {
  const Check* check = find_check(checks, code);
  if (check == nullptr) {
    std::vector<std::string> codes;
    for (const Check& row : checks) codes.emplace_back(row.code);
    const std::optional<std::string> near = nearest_name(code, codes);
    throw user_error("check.unknown", fmt::format("there is no check '{}'", code),
                     near ? fmt::format("did you mean {}?", *near) : "ms-diag list shows all");
  }
  std::string text = fmt::format("{} (level {}, {})\n", check->code, check->level, to_string(check->cost));
  for (const std::string& paragraph : split(paragraphs(*check), '\n')) {
    if (paragraph.empty()) continue;
    text += "\n";
    for (const std::string& line : wrap(paragraph, 100)) text += "  " + line + "\n";
  }
  return text;
}

}  // namespace ms::health
