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
    "Passive: a few files, counters and one question to the driver. Run as root in every prolog.",
    "Active: loads the node for seconds. Run as the user in a job step, or by hand, on a node that is otherwise idle. "
    "Checks that load different parts of the node run side by side.",
    "Active, and only by hand: soaks, which go on for as long as --soak says, and a disk whose directory is named."};

std::string facts(const Check& check) {
  std::string text = fmt::format(
      "Blames the {}. Cut after {}, which is then {}.", to_string(check.blame), format_duration(check.deadline_s),
      check.on_hang ? fmt::format("a {} finding", to_string(*check.on_hang)) : "no finding: it was not measured");
  if (!check.needs.empty()) text += fmt::format(" Needs {}.", check.needs);
  text += fmt::format(" Proved on {}.", proof(check));
  if (const auto names = to_strings(check.takes); !names.empty()) {
    text += fmt::format(" Takes the {}: no check that takes it, too, runs meanwhile.", fmt::join(names, " and the "));
  }
  if (check.soaks) text += " The time of the soak comes on top.";
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
       .summary = "a site's policy for ms-diag and its Slurm plugin",
       .description =
           "Says whether findings may drain nodes, which of them and how many, and what a healthy node of the site "
           "looks like. What runs as root reads /etc/ms/ms-diag.toml, or the file that plugstack.conf names, and "
           "believes it only if it is root's and nobody else may write it; otherwise nothing is done and the log says "
           "why. The file is read at every launch: there is nothing to restart. ms-diag --sample-policy prints one "
           "with every key commented out, which observes.",
       .see_also = {"ms-diag(1)", "ms-checks(7)", "ms_spank(8)"}},
      schema.reference());
}

}  // namespace

std::string checks_page(const std::vector<Check>& checks) {
  man::TopicPage page{
      .name = "ms-checks",
      .summary = "what the checks of ms-diag look at, and what to do about their findings",
      .description =
          "A check passes, warns, is critical, is skipped with a reason, or is broken: the check itself failed, which "
          "is reported and never counted against the node. A check that does not end in time is cut. That is a finding "
          "of "
          "its own where only hardware, a driver or a file system can be the cause; a check that only computes is "
          "skipped as not measured, since a node is not at fault for a check that is too slow.\n\n"
          "A drained node's reason begins with ms-diag: and the code of the worst finding, so that the first 20 "
          "characters, which sinfo -R shows, tell it. Only codes on the allow-list of ms-diag.toml(5) drain, and never "
          "what a user's job can cause.",
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
