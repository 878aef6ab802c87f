// Published fields of models with tables and biases.
#include "locus/error.h"
#include "models/published.h"

namespace locus::models {
namespace {

TEST(TableConfigsTest, PositionsAtTheInput) {
  const char* whisper = R"({"model_type": "whisper", "d_model": 768,
      "encoder_attention_heads": 12, "decoder_attention_heads": 12,
      "encoder_layers": 12, "decoder_layers": 12, "max_source_positions": 1500,
      "max_target_positions": 448, "max_length": 448})";
  CheckPublished({
      {"BERT base", R"({"model_type": "bert", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 512, "position_embedding_type": "absolute"})",
       0, "",
       "none + learned bert.embeddings.position_embeddings.weight 512x768",
       "12/12 heads, d 64, both ways, length 512"},
      {"BERT with relative keys", R"({"model_type": "bert", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 512,
        "position_embedding_type": "relative_key"})",
       3, "",
       "key-offset "
       "bert.encoder.layer.3.attention.self.distance_embedding.weight 1023x64",
       "12/12 heads, d 64, both ways, length 512"},
      {"DistilBERT base", R"({"model_type": "distilbert", "dim": 768,
        "n_heads": 12, "n_layers": 6, "max_position_embeddings": 512,
        "sinusoidal_pos_embds": false})",
       5, "",
       "none + learned distilbert.embeddings.position_embeddings.weight "
       "512x768",
       "12/12 heads, d 64, both ways, length 512"},
      {"RoBERTa base", R"({"model_type": "roberta", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 514, "pad_token_id": 1})",
       0, "",
       "none + learned roberta.embeddings.position_embeddings.weight 514x768",
       "12/12 heads, d 64, both ways, length 512"},
      {"GPT-2", R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12,
        "n_layer": 12, "n_ctx": 1024, "n_positions": 1024})",
       0, "", "none + learned transformer.wpe.weight 1024x768",
       "12/12 heads, d 64, causal, length 1024"},
      {"GPT-2 of Mistral-Stanford", R"({"model_type": "gpt2", "n_embd": 768,
        "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": true})",
       3, "", "none + learned transformer.wpe.weight 1024x768",
       "12/12 heads, d 1024, causal, length 1024"},
      {"OPT 125M", R"({"model_type": "opt", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 2048, "word_embed_proj_dim": 768})",
       0, "", "none + learned model.decoder.embed_positions.weight 2050x768",
       "12/12 heads, d 64, causal, length 2048"},
      {"BART large", R"({"model_type": "bart", "d_model": 1024,
        "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "encoder_layers": 12, "decoder_layers": 12,
        "max_position_embeddings": 1024, "static_position_embeddings": false})",
       0, "encoder",
       "none + learned model.encoder.embed_positions.weight 1026x1024",
       "16/16 heads, d 64, both ways, length 1024"},
      {"Opus-MT en-de", R"({"model_type": "marian", "d_model": 512,
        "encoder_attention_heads": 8, "decoder_attention_heads": 8,
        "encoder_layers": 6, "decoder_layers": 6,
        "max_position_embeddings": 512, "static_position_embeddings": true,
        "extra_pos_embeddings": 58101})",
       0, "decoder", "none + sinusoidal",
       "8/8 heads, d 64, causal, length 512"},
      {"M2M100 418M", R"({"model_type": "m2m_100", "d_model": 1024,
        "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "encoder_layers": 12, "decoder_layers": 12,
        "max_position_embeddings": 1024, "pad_token_id": 1})",
       0, "encoder", "none + sinusoidal",
       "16/16 heads, d 64, both ways, length 1024"},
      {"Whisper small", whisper, 0, "encoder", "none + sinusoidal",
       "12/12 heads, d 64, both ways, length 1500"},
      {"Whisper small", whisper, 0, "decoder",
       "none + learned model.decoder.embed_positions.weight 448x768",
       "12/12 heads, d 64, causal, length 448"},
      {"ViT base", R"({"model_type": "vit", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12, "image_size": 224,
        "patch_size": 16})",
       0, "", "none + learned vit.embeddings.position_embeddings 1x197x768",
       "12/12 heads, d 64, both ways, length 197"},
  });
}

TEST(TableConfigsTest, BiasesByBucket) {
  const char* t5 = R"({"model_type": "t5", "d_model": 512, "d_kv": 64,
      "num_heads": 8, "num_layers": 6, "n_positions": 512,
      "relative_attention_num_buckets": 32})";
  CheckPublished({
      {"T5 small", t5, 5, "encoder",
       "t5 "
       "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "
       "32x8",
       "8/8 heads, d 1, both ways, length 512"},
      {"T5 small", t5, 5, "decoder",
       "t5 "
       "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "
       "32x8",
       "8/8 heads, d 1, causal, length 512"},
      {"mT5 small", R"({"model_type": "mt5", "d_model": 512, "d_kv": 64,
        "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8,
        "relative_attention_num_buckets": 32})",
       0, "encoder",
       "t5 "
       "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "
       "32x6",
       "6/6 heads, d 1, both ways, length 0"},
      {"UMT5 small", R"({"model_type": "umt5", "d_model": 512, "d_kv": 64,
        "num_heads": 6, "num_layers": 8, "num_decoder_layers": 8,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32})",
       7, "decoder",
       "t5 "
       "decoder.block.7.layer.0.SelfAttention.relative_attention_bias.weight "
       "32x6",
       "6/6 heads, d 1, causal, length 0"},
      {"LongT5 local base", R"({"model_type": "longt5", "d_model": 768,
        "d_kv": 64, "num_heads": 12, "num_layers": 12,
        "num_decoder_layers": 12, "encoder_attention_type": "local",
        "local_radius": 127, "global_block_size": 16,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32})",
       0, "encoder",
       "t5 encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias."
       "weight 32x12",
       "12/12 heads, d 1, both ways, length 0, window 127+127"},
      {"Switch base 8", R"({"model_type": "switch_transformers",
        "d_model": 768, "d_kv": 64, "num_heads": 12, "num_layers": 12,
        "num_decoder_layers": 12, "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32})",
       0, "encoder",
       "t5 "
       "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight "
       "32x12",
       "12/12 heads, d 1, both ways, length 0"},
      {"MPNet base", R"({"model_type": "mpnet", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 514, "pad_token_id": 1,
        "relative_attention_num_buckets": 32})",
       0, "",
       "t5 + learned mpnet.encoder.relative_attention_bias.weight 32x12 "
       "mpnet.embeddings.position_embeddings.weight 514x768",
       "12/12 heads, d 64, both ways, length 512"},
      {"Swin tiny", R"({"model_type": "swin", "embed_dim": 96,
        "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24],
        "image_size": 224, "patch_size": 4, "window_size": 7,
        "use_absolute_embeddings": false})",
       5, "",
       "swin swin.encoder.layers.2.blocks.1.attention.self."
       "relative_position_bias_table 169x12",
       "12/12 heads, d 32, both ways, length 49"},
      {"BEiT base", R"({"model_type": "beit", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12, "image_size": 224,
        "patch_size": 16, "use_absolute_position_embeddings": false,
        "use_relative_position_bias": true,
        "use_shared_relative_position_bias": false})",
       2, "",
       "swin beit.encoder.layer.2.attention.attention.relative_position_bias."
       "relative_position_bias_table 732x12",
       "12/12 heads, d 64, both ways, length 197"},
  });
}

TEST(TableConfigsTest, RelativeTables) {
  CheckPublished({
      {"Transformer-XL WT103", R"({"model_type": "transfo-xl",
        "d_model": 1024, "d_head": 64, "n_head": 16, "n_layer": 18,
        "mem_len": 1600, "clamp_len": 1000, "same_length": true,
        "tgt_len": 128, "ext_len": 0, "attn_type": 0, "untie_r": true})",
       17, "",
       "transformer-xl transformer.layers.17.dec_attn.r_net.weight 1024x1024",
       "16/16 heads, d 64, causal, length 1600, window 1599+0"},
      {"XLNet base", R"({"model_type": "xlnet", "d_model": 768, "d_head": 64,
        "n_head": 12, "n_layer": 12, "attn_type": "bi", "bi_data": false,
        "clamp_len": -1, "mem_len": null, "reuse_len": null,
        "same_length": false, "untie_r": true})",
       0, "", "transformer-xl transformer.layer.0.rel_attn.r 768x12x64",
       "12/12 heads, d 64, both ways, length 0"},
      {"DeBERTa base", R"({"model_type": "deberta", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 512, "max_relative_positions": -1,
        "relative_attention": true, "pos_att_type": "c2p|p2c",
        "position_biased_input": false})",
       0, "", "deberta deberta.encoder.rel_embeddings.weight 1024x768",
       "12/12 heads, d 192, both ways, length 512"},
      {"DeBERTa v3 base", R"({"model_type": "deberta-v2", "hidden_size": 768,
        "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 512, "max_relative_positions": -1,
        "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": true, "pos_att_type": "p2c|c2p",
        "relative_attention": true, "position_biased_input": false})",
       11, "", "deberta deberta.encoder.rel_embeddings.weight 512x768",
       "12/12 heads, d 192, both ways, length 512"},
  });
}

TEST(TableConfigsTest, LinearBiases) {
  CheckPublished({
      {"BLOOM 560M", R"({"model_type": "bloom", "n_embed": 1024,
        "num_attention_heads": 16, "n_layer": 24, "seq_length": 2048})",
       0, "", "alibi", "16/16 heads, d 64, causal, length 2048"},
      {"BLOOM", R"({"model_type": "bloom", "n_embed": 14336,
        "num_attention_heads": 112, "n_layer": 70, "seq_length": 2048})",
       69, "", "alibi", "112/112 heads, d 128, causal, length 2048"},
      {"MPT 7B", R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32,
        "n_layers": 32, "max_seq_len": 2048, "learned_pos_emb": true,
        "attn_config": {"alibi": true, "alibi_bias_max": 8, "attn_impl":
        "torch", "attn_pdrop": 0, "attn_type": "multihead_attention",
        "attn_uses_sequence_id": false, "clip_qkv": null, "prefix_lm": false,
        "qk_ln": false, "softmax_scale": null}})",
       0, "", "alibi", "32/32 heads, d 128, causal, length 2048"},
      {"MPT 7B, saved again", R"({"model_type": "mpt", "d_model": 4096,
        "n_heads": 32, "n_layers": 32, "max_seq_len": 2048,
        "learned_pos_emb": true, "attn_config": {"_name_or_path": "",
        "architectures": null, "output_hidden_states": false,
        "return_dict": true, "chunk_size_feed_forward": 0,
        "is_encoder_decoder": false, "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0}, "problem_type": null, "model_type": "",
        "attn_type": "multihead_attention", "attn_pdrop": 0,
        "attn_impl": "torch", "clip_qkv": null, "softmax_scale": null,
        "prefix_lm": false, "qk_ln": false, "attn_uses_sequence_id": false,
        "alibi": true, "alibi_bias_max": 8}})",
       0, "", "alibi", "32/32 heads, d 128, causal, length 2048"},
      {"Falcon RW 1B", R"({"model_type": "falcon", "hidden_size": 2048,
        "num_attention_heads": 32, "num_hidden_layers": 24, "alibi": true,
        "multi_query": false, "new_decoder_architecture": false})",
       0, "", "alibi", "32/32 heads, d 64, causal, length 2048"},
      {"Baichuan 13B", R"({"model_type": "baichuan", "hidden_size": 5120,
        "num_attention_heads": 40, "num_hidden_layers": 40,
        "model_max_length": 4096})",
       0, "", "alibi", "40/40 heads, d 128, causal, length 4096"},
  });
  // Only keys inside that are related to positions count.
  const auto mpt = [](const std::string& more) -> std::string {
    try {
      FromConfig(R"({"model_type": "mpt", "d_model": 64, "n_heads": 4,
          "n_layers": 2, "max_seq_len": 64, "attn_config": {)" +
                 more + "}}");
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(
      mpt(R"("rope": true)"),
      "\"attn_config.rope\" is neither used by MPT nor known to be harmless "
      "to positions");
  EXPECT_EQ(mpt(R"("prefix_lm": true)"),
            "attn_config.prefix_lm = true asks for a mask that the call must "
            "bring");
}

}  // namespace
}  // namespace locus::models
