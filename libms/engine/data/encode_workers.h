// Threads that make tokens of batches of text, in any order; whoever submits them takes them back in the order that it
// wants, so that the result does not depend on how many threads there are.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "data/chat_encoder.h"
#include "data/image_encoder.h"
#include "data/json_lines.h"
#include "data/text_batch.h"
#include "data/tokenizer.h"

namespace ms::data {

// Cores that this process may use, at most 64.
int default_workers();

class EncodeWorkers {
 public:
  // `fields`: where the text is in JSON Lines; errors of JsonLine. With `chat`, JSON is conversations, with
  // `images`, texts with images. What is passed outlives the workers.
  EncodeWorkers(int count, const Tokenizer& tokenizer, const std::vector<std::string>& fields,
                const ChatEncoder* chat = nullptr, const ImageEncoder* images = nullptr);
  EncodeWorkers(const EncodeWorkers&) = delete;
  EncodeWorkers& operator=(const EncodeWorkers&) = delete;
  ~EncodeWorkers();

  // The batch is the workers' from here to the end of wait() for it, or of the workers.
  void submit(TextBatch& batch);
  // Throws what a worker threw.
  void wait(const TextBatch& batch);

 private:
  void run(const std::stop_token& stop, JsonLine& json);

  const Tokenizer& tokenizer_;
  const ChatEncoder* chat_;
  const ImageEncoder* images_;
  std::mutex mutex_;  // guards the two below
  std::deque<TextBatch*> waiting_;
  std::set<const TextBatch*> done_;
  std::condition_variable_any changed_;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace ms::data
