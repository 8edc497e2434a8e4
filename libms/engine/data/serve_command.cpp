// ms-data serve: the loader of a node for programs other than ms-train, which read its ring through ms_loader.h.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/print.h"
#include "base/text.h"
#include "data/commands.h"
#include "data/facts.h"
#include "data/loader.h"
#include "data/loader_process.h"

namespace ms::data {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

// Returns when no process writes to standard input any more.
void wait_for_end(LoaderProcess& loader) {
  std::array<char, 256> ignored;
  while (true) {
    loader.check();
    pollfd input{STDIN_FILENO, POLLIN, 0};
    constexpr int kCheckEvery_ms = 100;
    if (::poll(&input, 1, kCheckEvery_ms) > 0 && ::read(STDIN_FILENO, ignored.data(), ignored.size()) <= 0) return;
  }
}

std::vector<int> dp_ranks_of(const Args& args, int dp) {
  std::vector<int> ranks;
  for (const std::string& word : split(args.get("dp-ranks"), ',')) {
    int rank = -1;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), rank);
    if (problem != std::errc{} || end != word.data() + word.size() || rank >= dp ||
        rank <= (ranks.empty() ? -1 : ranks.back()))
      throw user_error("cli.value", fmt::format("--dp-ranks: must be growing numbers below {}: 0,1", dp));
    ranks.push_back(rank);
  }
  return ranks;
}

int serve(const Args& args) {
  const auto number = [&](const char* name, std::int64_t least) { return args.get_int(name, least, kMost); };
  const DataConfig config{.train = args.list("TRAIN"),
                          .valid = {},
                          .valid_fraction = args.get_double("valid-fraction"),
                          .reset_attention = args.has("reset-attention"),
                          .balance = !args.has("no-balance"),
                          .read_timeout_s = args.get_seconds("read-timeout"),
                          .loaders = args.get_int("loaders", 0, 64)};
  if (!(config.valid_fraction >= 0 && config.valid_fraction <= 0.5))
    throw user_error("cli.value", "--valid-fraction: must be 0 to 0.5");
  const BatchShape shape{.seq = number("seq", 1), .global_batch = number("global-batch", 1)};
  const auto dp = static_cast<int>(number("dp", 1));
  const std::int64_t microbatch = number("microbatch", 1);
  if (shape.global_batch % (dp * microbatch) != 0) {
    throw user_error(
        "cli.value",
        fmt::format("a global batch of {} samples cannot be divided into microbatches of {} on {} dp ranks",
                    shape.global_batch, microbatch, dp));
  }
  const LoaderTask task{.order = {.begin = args.get_int("step", 0, kMost), .end = 2 * kMost},
                        .first_sample = args.get_int("sample", 0),
                        .dp_ranks = dp_ranks_of(args, dp),
                        .division = {.dp = dp, .microbatch = microbatch},
                        .has_digests = true,
                        .most_loaders = static_cast<int>(config.loaders)};
  const std::int64_t vocab = number("vocab", 1), seed = number("seed", 0);
  LoaderProcess loader(
      [&] { return std::make_unique<Loader>(config, shape, vocab, static_cast<std::uint64_t>(seed)); });
  const DataFacts facts = DataFacts::parse(loader.open(config.read_timeout_s, [] {}));
  const BatchRing ring({.readers = static_cast<int>(args.get_int("readers", 1, 4096)),
                        .parts = static_cast<int>(task.dp_ranks.size()),
                        .rows = shape.global_batch / dp,
                        .seq = shape.seq,
                        .has_starts = config.reset_attention});
  loader.run(ring, task);
  const Json answer{{"address", ring.address()}, {"fingerprint", facts.fingerprint}, {"has_mask", facts.has_mask}};
  print_out("{}\n", answer.dump());
  std::fflush(stdout);
  wait_for_end(loader);
  return 0;
}

}  // namespace

Command serve_command() {
  return {
      .name = "serve",
      .summary = "read the batches of a run for other programs of this node",
      .positionals = {{.name = "TRAIN", .doc = "Token files, as in data.train of ms.toml(5).", .many = true}},
      .options =
          {{.name = "seq", .value = "N", .doc = "Tokens of a sample.", .required = true},
           {.name = "global-batch", .value = "N", .doc = "Samples of a step, over all dp ranks.", .required = true},
           {.name = "dp", .value = "N", .doc = "Number of dp ranks.", .default_text = "1"},
           {.name = "dp-ranks", .value = "LIST", .doc = "The dp ranks of this node: 0,1.", .default_text = "0"},
           {.name = "readers", .value = "N", .doc = "Processes of this node that read.", .default_text = "1"},
           {.name = "microbatch",
            .value = "N",
            .doc = "Samples of a microbatch, among which --reset-attention balances.",
            .default_text = "1"},
           {.name = "seed", .value = "N", .doc = "Seed of the order of samples.", .default_text = "0"},
           {.name = "step", .value = "N", .doc = "The first step.", .default_text = "0"},
           {.name = "sample",
            .value = "N",
            .doc = "The sample of the run's order with which that step begins.",
            .default_text = "0"},
           {.name = "vocab",
            .value = "N",
            .doc = "Refuse tokens that are not below N.",
            .default_text = fmt::format("{}", kMost)},
           {.name = "valid-fraction",
            .value = "FRACTION",
            .doc = "Leave out this fraction of each file, at its end.",
            .default_text = "0"},
           {.name = "reset-attention", .doc = "Also tell where the documents of a sample begin."},
           {.name = "no-balance", .doc = "Keep the order of samples with --reset-attention."},
           {.name = "loaders", .value = "N", .doc = "As data.loaders of ms.toml(5).", .default_text = "0"},
           {.name = "read-timeout",
            .value = "DURATION",
            .doc = "Maximum time in which the files are opened.",
            .default_text = "300s"}},
      .run = serve,
      .description =
          "Fills memory that processes of this user share with the batches that ms-train would train on, in the same "
          "order, a few steps ahead. The Python module ms_loader starts it and reads them without a copy; ms_loader.h "
          "is the C interface. Prints one line of JSON: the address for ms_loader_open(), the fingerprint of the data, "
          "and whether a file has a loss mask. Ends when its standard input is closed."};
}

}  // namespace ms::data
