// The command pack of ms-data.
#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/print.h"
#include "base/text.h"
#include "data/commands.h"
#include "data/pack.h"
#include "data/token_writer.h"

namespace ms::data {
namespace {

constexpr std::int64_t kMostPacked = std::numeric_limits<std::int32_t>::max();

struct TooLongName {
  std::string_view name;
  TooLong policy;
  std::string_view what_was;
};
constexpr TooLongName kTooLong[] = {
    {"refuse", TooLong::refuse, ""}, {"truncate", TooLong::truncate, "truncated"}, {"skip", TooLong::skip, "skipped"}};

const TooLongName& too_long_of(const std::string& name) {
  const auto* const found = std::ranges::find(kTooLong, name, &TooLongName::name);
  if (found != std::end(kTooLong)) return *found;
  throw user_error("cli.value", fmt::format("--too-long: '{}' is not refuse, truncate or skip", name));
}

int run_pack(const Args& args) {
  const std::string output = args.get("output");
  if (!args.has("force")) refuse_existing(output);
  const TooLongName& too_long = too_long_of(args.get("too-long"));
  const PackReport report = pack(args.get("PREFIX"), output,
                                 {.seq = args.get_int("seq", 1, kMostPacked),
                                  .too_long = too_long.policy,
                                  .buffer = args.get_int("buffer", 1, kMostPacked)});
  print_out("{}: {} of {}, {}, {}, {} of padding\n", output, plural(report.num_samples, "sample"),
            plural(args.get_int("seq", 1, kMostPacked), "token"), plural(report.num_documents, "document"),
            plural(report.num_tokens, "token"), report.num_padding);
  print_out("{} of {} are targets of the loss\n", report.num_targets, plural(report.num_tokens, "token"));
  if (report.num_too_long > 0) {
    print_out("{} {}, which are longer than a sample: {} lost\n", too_long.what_was,
              plural(report.num_too_long, "document"), plural(report.lost_tokens, "token"));
  }
  if (report.num_ignored_documents > 0)
    print_out("dropped {} that had no target left\n", plural(report.num_ignored_documents, "document"));
  return 0;
}

}  // namespace

Command pack_command() {
  return {
      .name = "pack",
      .summary = "pack whole documents to samples of one length",
      .positionals = {{"PREFIX", "The path of a token file without .bin and .idx."}},
      .options = {{.name = "output",
                   .value = "PREFIX",
                   .doc = "The path to write, without .bin and .idx.",
                   .letter = 'o',
                   .required = true},
                  {.name = "seq", .value = "N", .doc = "Tokens of a sample: model.seq of the run.", .required = true},
                  {"too-long", "refuse|truncate|skip",
                   "What becomes of a document with more tokens than a sample: refuse, truncate (its end is lost) "
                   "or skip. The last two are counted.",
                   "refuse"},
                  {"buffer", "N", "Number of documents that are packed together. More of them leave less padding.",
                   "100000"},
                  {"force", "", "Replace an existing token file."}},
      .run = run_pack,
      .description =
          "Packs documents, such as conversations, by best fit decreasing: no document is split over two samples. "
          "The loss ignores padding and the first token of each document, so that a packed file always has a loss "
          "mask. Documents of a file with a mask that have no target left, also because they were truncated, are "
          "dropped and counted apart. Set data.reset_attention = true (ms_loader: reset_attention=True), so that "
          "documents of a sample do not attend to each other. The result depends on the token file and the options "
          "alone; a run shuffles the samples, and resumes exactly."};
}

}  // namespace ms::data
