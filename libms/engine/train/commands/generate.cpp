// One of the commands of train/commands/commands.h: lets a model continue a text.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/escape.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/text.h"
#include "ckpt/command_support.h"
#include "data/config.h"
#include "mesh/shard.h"
#include "slurm/launch.h"
#include "train/checkpoint/tokenizer_files.h"
#include "train/commands/commands.h"
#include "train/run/generate.h"
#include "train/run/launch.h"

namespace ms::train {
namespace {

constexpr std::int64_t kMaxTokens = 1'000'000;

double number_between(const Args& args, const std::string& option, double min, double max) {
  const double value = args.get_double(option);
  if (value >= min && value <= max) return value;
  throw user_error("cli.value", fmt::format("--{} {}: expected {} to {}", option, args.get(option), min, max));
}

std::vector<std::int32_t> parse_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const std::string& word : split(text, ',')) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw user_error("cli.value", fmt::format("--tokens: '{}' is not a token id", word), "as in --tokens 17,4,203");
    }
    ids.push_back(id);
  }
  return ids;
}

// The tokenizer that is named, or that of the checkpoint.
KnownTokenizer tokenizer_of(const Args& args, const ckpt::Found& found, const Settings& settings) {
  const std::int64_t vocab = settings.model.vocab;
  KnownTokenizer known;
  if (args.has("tokenizer")) {
    known.tokenizer = data::make_tokenizer(args.get("tokenizer"));
    known.stops = {known.tokenizer->end_of_document()};
  } else {
    known = tokenizer_of_checkpoint(found.path, settings, args.has("tokens"));
  }
  if (!known.tokenizer || known.tokenizer->vocab_size() <= vocab) return known;
  throw user_error("data.tokenizer", fmt::format("the tokenizer '{}' has {} tokens, and model.vocab is {}",
                                                 known.tokenizer->name(), known.tokenizer->vocab_size(), vocab));
}

// The prompt in tokens. Without one, a text begins where a document ends.
std::vector<std::int32_t> prompt_of(const Args& args, const data::Tokenizer* tokenizer, const nn::ModelConfig& model) {
  if (args.has("tokens") && args.has("prompt")) {
    throw user_error("cli.value", "--tokens and --prompt are two prompts", "leave one of them out");
  }
  std::vector<std::int32_t> prompt;
  if (args.has("tokens")) {
    prompt = parse_ids(args.get("tokens"));
  } else if (tokenizer == nullptr) {
    throw user_error(
        "data.tokenizer", fmt::format("no tokenizer is known for a vocabulary of {} tokens", model.vocab),
        "give the prompt as token ids, --tokens 17,4,203: the answer is ids, too; or name a tokenizer, --tokenizer");
  } else {
    if (!args.has("no-template")) prompt = tokenizer->frame().begin;
    tokenizer->encode(args.get("prompt"), prompt);
    if (prompt.empty()) prompt.push_back(tokenizer->end_of_document());
  }
  if (prompt.empty()) throw user_error("cli.value", "--tokens is empty", "a model continues at least one token");
  for (const std::int32_t id : prompt) {
    if (id >= 0 && id < model.vocab) continue;
    throw user_error("data.vocab",
                     fmt::format("token {} of the prompt: the model's vocabulary is 0 to {}", id, model.vocab - 1));
  }
  return prompt;
}

// One sequence; replicas would all compute the same. The context need not be longer than what will be in it. A token is
// not split over tp, and is of one document with all before it.
void adjust_to_generate(Settings& settings, std::int64_t tokens) {
  nn::ModelConfig& model = settings.model;
  settings.train.microbatch = 1;
  settings.train.global_batch = settings.mesh.dp * settings.mesh.pp;
  settings.mesh.sequence_parallel = false;
  settings.data.reset_attention = false;
  model.seq = std::min(model.seq, mesh::pad_to_multiple(std::max(tokens, model.window), settings.mesh.tp));
}

// Prints tokens as they come: as text, or as ids. A token may end within a character, which waits for the next one.
class Printer {
 public:
  explicit Printer(const data::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  void print(std::int32_t token) {
    text_ += tokenizer_ != nullptr ? tokenizer_->decode({&token, 1}, goes_on_) : fmt::format("{} ", token);
    goes_on_ = goes_on_ || (tokenizer_ != nullptr && !tokenizer_->decode({&token, 1}, true).empty());
    write(whole_utf8_bytes(text_));
  }
  void finish() {
    text_ += '\n';
    write(text_.size());
  }

 private:
  void write(std::size_t bytes) {
    write_out(std::string_view(text_).substr(0, bytes));
    text_.erase(0, bytes);
    std::fflush(stdout);
  }

  const data::Tokenizer* tokenizer_;
  std::string text_;
  bool goes_on_ = false;
};

int run_generate(const Args& args) {
  GenerateOptions options;
  options.max_tokens = args.get_int("max-tokens", 1, kMaxTokens);
  options.sampling = {number_between(args, "temperature", 0, 100), number_between(args, "top-p", 1e-9, 1)};
  options.seed = static_cast<std::uint64_t>(args.get_int("seed", 0));
  const ckpt::Found found = ckpt::choose_complete(args.get("PATH"));
  KnownTokenizer known;
  std::vector<std::int32_t> prompt;
  std::vector<std::string> settings{"mesh.dp=1", "mesh.cp=1"};
  for (const std::string& setting : args.list("set")) settings.push_back(setting);
  const Loaded loaded = load_for_inference(found, settings, [&](Settings& adjusted) {
    if (adjusted.mesh.cp != 1)
      throw user_error("mesh.size", "a rank that generates has whole sequences: mesh.cp must be 1");
    known = tokenizer_of(args, found, adjusted);
    prompt = prompt_of(args, known.tokenizer.get(), adjusted.model);
    adjust_to_generate(adjusted, std::ssize(prompt) + options.max_tokens);
  });
  const std::unique_ptr<data::Tokenizer> tokenizer = std::move(known.tokenizer);
  const nn::ModelConfig& model = loaded.settings.model;
  if (std::ssize(prompt) >= model.seq && slurm::this_launch().rank == 0) {
    log::warn("train", "the prompt has {} tokens, and model.seq is {}: only the last {} are used", prompt.size(),
              model.seq, std::max<std::int64_t>(1, model.seq / 2));
  }
  options.vocab = tokenizer ? tokenizer->vocab_size() : model.vocab;
  options.stops = std::move(known.stops);
  if (args.has("stop-token"))
    options.stops = {static_cast<std::int32_t>(args.get_int("stop-token", 0, model.vocab - 1))};

  const auto generate_and_print = [&](Engine& engine, const Plan& plan, const comm::World& world, DataFeed*) {
    const bool prints = world.rank() == 0, streams = prints && !args.has("json");
    Printer printer(args.has("tokens") ? nullptr : tokenizer.get());
    if (streams) std::ranges::for_each(prompt, [&](std::int32_t token) { printer.print(token); });
    std::vector<std::int32_t> made;
    generate(engine, plan.settings.model.seq, prompt, options, [&](std::int32_t token) {
      made.push_back(token);
      if (streams) printer.print(token);
    });
    if (streams) printer.finish();
    if (!prints || streams) return;
    Json json{{"schema", 1},
              {"checkpoint", found.path},
              {"prompt_tokens", prompt},
              {"tokens", made},
              {"finish", std::ssize(made) < options.max_tokens ? "stop" : "length"}};
    if (tokenizer) json["text"] = tokenizer->decode(made, true);
    print_out("{}\n", json.dump(2));
  };
  return static_cast<int>(
      launch_inference(loaded, {.checkpoint = found, .use = generate_and_print, .generates = true}));
}

}  // namespace

Command generate_command() {
  return {
      .name = "generate",
      .summary = "generate text with a checkpoint's model",
      .positionals = {ckpt::checkpoint_positional()},
      .options =
          {{"prompt", "TEXT", "The text to continue (default: a new document)."},
           {"tokens", "ID,ID...",
            "The prompt as token ids. The output is token ids, too. For models without a known tokenizer."},
           {"tokenizer", "NAME",
            "byte, or the path of a tokenizer.json. Default: hf/tokenizer.json beside the checkpoint, or that of the "
            "first "
            "file of data.train, or else byte, if model.vocab is 257."},
           {"no-template", "",
            "Do not begin the prompt with the special tokens that the template of tokenizer.json puts before a text."},
           {"max-tokens", "N", "Generate at most N tokens.", "64"},
           {"temperature", "T",
            "Divide the logits by T. Below 1 likely tokens become more likely; 0 always takes the most likely one.",
            "0.8"},
           {"top-p", "P", "Sample from the most likely tokens with a total probability of P.", "1"},
           {"seed", "N", "Seed of the random numbers. The same seed generates the same text.", "1234"},
           {"stop-token", "ID",
            "Stop at this token (default: eos_token_id in hf beside the checkpoint, or the tokenizer's end of a "
            "document)."},
           inference_set_option(),
           ckpt::json_option()},
      .run = run_generate,
      .description =
          "Prints the prompt and the generated text, token by token. The checkpoint may come from a run, or from a "
          "Hugging Face model that 'ms-ckpt import' converted. Layouts and ranks are as for eval, but with mesh.dp = "
          "1.\n\n"
          "There is no KV cache: each token takes a forward pass over the prompt and the generated tokens. When a "
          "context of model.seq tokens is full, its older half is dropped."};
}

}  // namespace ms::train
