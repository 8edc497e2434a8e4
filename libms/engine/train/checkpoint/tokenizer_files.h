// The tokenizer of a model, in the folder beside its checkpoints (hf/companions.h): a run puts it there, so that
// generate and export need nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "train/config.h"

namespace ms::train {

// The tokenizer of a folder of companions, for programs that know nothing of the run.
struct TokenizerFiles {
  std::map<std::string, std::string> files;     // by name: what the folder lacks
  std::optional<std::int32_t> end_of_document;  // that of the data; nullopt: the folder has another tokenizer, or none
};

// Returns what `companions` lacks of the tokenizer that the run's data was encoded with. Logs a warning where there is
// no tokenizer, or another one.
TokenizerFiles tokenizer_files(const std::string& companions, const Settings& settings);

// Puts that beside the checkpoints in checkpoint.dir. A byte tokenizer needs no file there.
void keep_tokenizer(const Settings& settings);

struct KnownTokenizer {
  std::unique_ptr<data::Tokenizer> tokenizer;  // nullptr: none is known
  std::vector<std::int32_t> stops;             // the ids that end a text
};

// The tokenizer of a checkpoint: that beside it, or that of the data that its model was trained on, or else the one
// with the model's vocabulary. `only_ids`: no text is encoded, and the one beside it, which may be of a kind that is
// not known here, is not read. Errors of data::make_tokenizer().
KnownTokenizer tokenizer_of_checkpoint(const std::string& path, const Settings& settings, bool only_ids);

}  // namespace ms::train
