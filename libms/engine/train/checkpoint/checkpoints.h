// The checkpoints of a run, from the trainer's side: resumes from the newest sound one, decides when to save, saves
// while training continues, and reports the outcome. One per rank. Every method is collective over the world unless it
// says otherwise, and every rank decides the same, because all decide on the same numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ckpt/directory.h"
#include "ckpt/saver.h"
#include "train/checkpoint/resume.h"
#include "train/engine/engine.h"

namespace ms::train {

class Checkpoints {
 public:
  // Takes the directory's lock and clears what killed saves have left. `fresh`: checkpoints that are there are set
  // aside. The plan, the world, the engine and the host's device outlive it.
  Checkpoints(const Plan& plan, const std::string& resolved, comm::World& world, Engine& engine, tensor::Device& host,
              bool fresh);
  ~Checkpoints();

  // Loads the newest checkpoint that can be loaded, as train::resume(); where there is none, that of checkpoint.load.
  Origin resume(const std::string& data_fingerprint);

  // Sets the matmul choices that checkpoints store from now on. Local.
  void set_matmul_choices(std::string choices);
  // Sets the chain of the samples of the steps that are issued, on rank 0; empty: not known. Local.
  void set_data_chain(std::string chain);

  // This rank's votes for the step that is about to be issued; and what all ranks voted in a step. Local.
  void cast(Votes& votes);
  // Returns a save that has ended, once, as this rank saw it.
  std::optional<ckpt::SaveOutcome> heard(std::int64_t step, const Votes& sum);
  // The newest save that was begun, in steps done, -1: none; and whether it is still being written. Local.
  std::int64_t begun() const;
  bool busy() const;

  // Every rank has issued the step that makes it `done` steps, and nothing of the next one. Saves if it is due, or the
  // save before has failed some time ago. Throws Error("ckpt.failed", storage) when as many saves have failed on end as
  // checkpoint.max_failed says.
  void boundary(std::int64_t done, std::int64_t samples);
  // How long a finished step took: what saves cost is measured by it. Local.
  void step_took(double seconds);

  // The run ends with this step: it is saved if it is not yet, and everything is committed when this returns.
  // Error("ckpt.failed", storage) otherwise. The path of the checkpoint.
  std::string finish(std::int64_t done, std::int64_t samples);

  // The run ends, to go back before step `at`, counted from 1, and on with the data from sample `end`. Returns the path
  // of the checkpoint that the next start begins with; all that follows is durable by then. Errors: "train.rollback",
  // user: there is none, or the run had as many rollbacks as it may; storage.
  std::string roll_back(std::int64_t at, std::int64_t end, const std::string& why);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::train
