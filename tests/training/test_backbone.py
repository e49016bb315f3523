import pytest
import torch
from transformers import BertConfig, BertModel

from lmk_viz.training.backbone import convert_backbone

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 160,
}


def bert(**changes) -> BertModel:
    torch.manual_seed(0)
    model = BertModel(BertConfig(**{**SIZES, **changes}), add_pooling_layer=False).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


@torch.no_grad()
def test_without_rotation_and_with_one_position_for_all_it_is_the_bert_it_came_from():
    model = bert()
    table = model.embeddings.position_embeddings.weight
    table.copy_(table[5].expand_as(table))
    converted = convert_backbone(model)
    converted.rotary_emb.inv_freq.zero_()
    ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
    found = converted(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1, :6], expected[1, :6], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_mean_of_the_positions_after_the_first_goes_to_every_token():
    model = bert()
    converted = convert_backbone(model)
    embeddings = model.embeddings
    expected = embeddings.token_type_embeddings.weight[0] + embeddings.position_embeddings.weight[
        1:128
    ].mean(dim=0)
    torch.testing.assert_close(converted.embeddings.token_type_embeddings.weight[0], expected)


@torch.no_grad()
def test_order_matters_and_longer_texts_than_the_table_go_through():
    converted = convert_backbone(bert(), max_length=4096)
    ids = torch.randint(0, 50, (1, 400), generator=torch.Generator().manual_seed(2))
    states = converted(input_ids=ids).last_hidden_state
    assert torch.isfinite(states).all()
    turned = converted(input_ids=ids.flip(1)).last_hidden_state.flip(1)
    assert (states - turned).abs().max() > 1e-4
    assert converted.config.max_position_embeddings == 4096


def test_what_is_no_bert_with_gelu_is_refused(build_model):
    with pytest.raises(ValueError, match="GteModel came; only a BertModel"):
        convert_backbone(build_model("gte"))
    with pytest.raises(ValueError, match="only a BertModel with GELU"):
        convert_backbone(bert(hidden_act="relu"))
