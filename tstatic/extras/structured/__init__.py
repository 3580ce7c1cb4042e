"""Losses and decoders of label sequences: CRF, CTC, edit distance, chunks and beams.

* ``beam_search``: One step of a beam search.
* ``beam_search_decode``: The sentences that its steps make.
* ``chunk_eval``: How many chunks of a labelling are right.
* ``crf_decoding``: The best path of a linear-chain CRF.
* ``ctc_align``: Merges repeated classes and removes blanks.
* ``edit_distance``: The least number of edits between two sequences, and `sequence_erase`.
* ``gather_tree``: Whole beams from the ids and parents of each step.
* ``linear_chain_crf``: The negative log likelihood of labels under a linear-chain CRF.
* ``viterbi_decode``: The best path of a CRF with special tags for start and end.
* ``warpctc``: The CTC loss.
* ``warprnnt``: The transducer loss (RNN-T).
* ``_sequences``: Where the rows of sequences of different lengths stand, and their order by time step.
"""
