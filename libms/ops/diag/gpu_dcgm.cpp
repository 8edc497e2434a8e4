// gpu.dcgm: NVIDIA's own diagnostics, by dcgmi; with the field diagnostic (EUD) where that is installed.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "base/text.h"
#include "diag/tool.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kDcgmi_s = 3000;  // level 3 takes a quarter of an hour, the EUD as long again

// The texts of "warnings", which DCGM writes as one text or as a list of objects.
std::string words_of(const Json& result) {
  std::string words;
  const auto add = [&](const Json& text) {
    if (text.is_string()) words += (words.empty() ? "" : "; ") + text.get<std::string>();
  };
  const Json* const warnings = result.find("warnings");
  if (warnings == nullptr) return words;
  add(*warnings);
  for (std::size_t i = 0; warnings->is_array() && i < warnings->size(); ++i) {
    for (const std::string_view key : {"warning", "error"}) {
      if (const Json* const text = warnings->at(i).find(key)) add(*text);
    }
  }
  return words;
}

// "gpu 3": DCGM 3 says "gpu_ids", DCGM 4 an entity of a group.
std::string entity_of(const Json& result) {
  const Json* const ids = result.find("gpu_ids");
  if (ids != nullptr && ids->is_string()) return "gpu " + plain_text(ids->get<std::string>(), 40);
  const Json* const group = result.find("entity_group");
  const Json* const id = result.find("entity_id");
  if (group == nullptr || id == nullptr || !group->is_string() || !id->is_number()) return "node";
  const std::string name = plain_text(group->get<std::string>(), 20);
  return fmt::format("{} {:g}", name == "GPU" ? "gpu" : name, id->get<double>());
}

struct Results {
  std::size_t all = 0;  // 0: this is no answer of dcgmi diag
  std::size_t run = 0;  // of them; DCGM skips what a GPU or its configuration does not allow
};

// "NOT RUN" is "notrun": versions differ in case and in blanks.
std::string plain_status(std::string_view status) {
  std::string plain;
  for (const char c : status) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

// The document: lines of the host engine, with braces or without, may come before it.
Json document_of(std::string_view out) {
  for (std::size_t at = 0; at < out.size(); at = std::min(out.find('\n', at), out.size() - 1) + 1) {
    if (out[at] != '{') continue;
    if (std::optional<Json> json = Json::try_parse(out.substr(at))) return std::move(*json);
  }
  return Json::parse(out.substr(std::min(out.find('{'), out.size())));
}

Results judge_diag(const Json& json, std::vector<Finding>& findings) {
  Results results;
  const Json* const root = json.find("DCGM Diagnostic");
  const Json* const old_root = json.find("DCGM GPU Diagnostic");
  if (root == nullptr && old_root == nullptr) return results;
  for (const Json& category : (root != nullptr ? *root : *old_root).at("test_categories")) {
    for (const Json& test : category.at("tests")) {
      for (const Json& result : test.at("results")) {
        ++results.all;
        const auto status = result.get<std::string>("status");
        const std::string plain = plain_status(status);
        if (plain == "skip" || plain == "skipped" || plain == "notrun") continue;
        ++results.run;
        if (plain == "pass" || plain == "passed") continue;
        const std::string words = words_of(result);
        findings.push_back(about(entity_of(result), Severity::warning,
                                 fmt::format("DCGM's {}: {}", plain_text(test.get<std::string>("name"), 40),
                                             words.empty() ? plain_text(status, 40) : plain_text(words, 200))));
      }
    }
  }
  return results;
}

health::Result ask_dcgm(health::Evidence& evidence) {
  const ToolAnswer answer =
      ask_tool({evidence.policy().paths.dcgmi, "diag", "--run", "3", "--json"}, "paths.dcgmi", kDcgmi_s);
  if (!answer.why.empty()) return health::skipped(answer.why);
  std::vector<Finding> findings;
  Results results;
  try {
    results = judge_diag(document_of(answer.out), findings);
  } catch (const JsonError& error) {
    return health::broken(fmt::format("what dcgmi printed cannot be read: {}", error.what()));
  }
  if (results.all == 0) return health::skipped("dcgmi: " + plain_text(answer.out, 160));
  if (results.run == 0) {
    return health::skipped(fmt::format("nothing was run: DCGM skipped all of {}", plural(results.all, "result")));
  }
  health::Result result = health::judged(std::move(findings));
  result.note = fmt::format("{} of dcgmi diag", plural(results.run, "result"));
  if (results.run < results.all) result.note += fmt::format(", {} skipped", results.all - results.run);
  return result;
}

}  // namespace

extern constinit const health::Check kGpuDcgm = {
    .code = "gpu.dcgm",
    .level = 3,
    .lane = health::Lane::active,
    .summary = "GPUs that fail the diagnostics of NVIDIA's DCGM",
    .needs = "dcgmi (paths.dcgmi) and its host engine",
    .deadline_s = 3060,
    .blame = Blame::gpu,
    .cost = health::Cost::seconds,
    .takes = health::kGpus | health::kBus,
    .proved = "a fake dcgmi",
    .explain =
        "Runs dcgmi diag --run 3, which takes a quarter of an hour, and reports every test that failed or warned, with "
        "the GPU and the message of DCGM. If root runs it and NVIDIA's field diagnostic (EUD) is installed, DCGM "
        "includes it. Not yet seen on real hardware, so it only warns.",
    .remedy = "Follow the message of DCGM: reset the GPU, reboot, or send it in with the log of the EUD.",
    .run = ask_dcgm};

}  // namespace ms::diag
