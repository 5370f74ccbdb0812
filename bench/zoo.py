"""Models of torchvision, timm and transformers, all by one rule: what their catalogues list, with random weights and no
download. For bench/population.py; a name is `torchvision/NAME`, `timm/NAME` or `transformers/TYPE`.

The rule: torchvision and timm: every model that takes one image. transformers: every type of configuration that AutoModel
makes a model of, whose class says what its main input is: `input_ids` (128 tokens), `pixel_values` (an image) or
`input_features` (as many frames as the configuration asks for). The configuration is the type's default one, cut as small_config says:
enough layers to show what a model has.
"""
import random

TOKENS = 128
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers")
# Models of clips or of several inputs, and those whose results are lists of boxes that an eager loop assembles.
NO_IMAGE = ("raft", "s3d", "r3d", "mc3", "r2plus1d", "mvit", "swin3d", "rcnn", "retinanet", "ssd", "fcos", "quantized")


def catalogue(sources):
    """The names of all models, a list a source."""
    out = []
    if "torchvision" in sources:
        import torchvision
        out.append([f"torchvision/{n}" for n in torchvision.models.list_models() if not any(s in n for s in NO_IMAGE)])
    if "timm" in sources:
        import timm
        out.append([f"timm/{n}" for n in timm.list_models()])
    if "transformers" in sources:
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
        out.append([f"transformers/{n}" for n in sorted(MODEL_MAPPING_NAMES)])
    return out


def draw(sources, seed, admits):
    """Names without repetition, of each source in turn; one that |admits| refuses is followed by another of its source, so
    that every source has its share."""
    lists, rng = catalogue(sources), random.Random(seed)
    for one in lists:
        rng.shuffle(one)
    while any(lists):
        for one in lists:
            while one:
                name = one.pop()
                if admits(name):
                    yield name
                    break


def small_config(config):
    """Four layers at most, a width that a laptop holds, and a vocabulary of 32,000 at most."""
    for name in LAYERS:
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(getattr(config, name), 4))
    if isinstance(getattr(config, "hidden_size", None), int) and config.hidden_size > 1024:
        heads = config.num_attention_heads
        config.hidden_size, config.num_attention_heads = 512, 8
        if getattr(config, "num_key_value_heads", None):
            config.num_key_value_heads = max(1, 8 * config.num_key_value_heads // heads)
        if getattr(config, "head_dim", None):
            config.head_dim = 64
        if hasattr(config, "intermediate_size"):
            config.intermediate_size = 1408
    if isinstance(getattr(config, "vocab_size", None), int):
        config.vocab_size = min(config.vocab_size, 32000)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            if isinstance(getattr(config, name, None), int) and getattr(config, name) >= config.vocab_size:
                setattr(config, name, 0)
    if getattr(config, "layer_types", None) and hasattr(config, "num_hidden_layers"):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    return config


def first_int(value, otherwise):
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return value if isinstance(value, int) else otherwise


def transformer(kind, batch, torch):
    import transformers
    config = transformers.AutoConfig.for_model(kind)
    if getattr(config, "sub_configs", None):
        raise NotImplementedError("several models in one")
    config = small_config(config)
    config.use_cache = False
    model = transformers.AutoModel.from_config(config)
    if not isinstance(getattr(config, "vocab_size", 1), int):
        raise NotImplementedError("several vocabularies")
    if model.main_input_name == "input_ids" and not getattr(config, "is_encoder_decoder", False):
        return model, [torch.randint(0, min(config.vocab_size, 1000), (batch, TOKENS))]
    if model.main_input_name == "pixel_values":
        size = first_int(getattr(config, "image_size", None), 224)
        return model, [torch.randn(batch, first_int(getattr(config, "num_channels", None), 3), size, size)]
    if model.main_input_name == "input_features" and not getattr(config, "is_encoder_decoder", False):
        return model, [torch.randn(batch, first_int(getattr(config, "max_length", None), 1024),
                                   first_int(getattr(config, "num_mel_bins", None), 80))]
    raise NotImplementedError(f"more inputs than {model.main_input_name}")


def make(name, batch, torch):
    source, _, which = name.partition("/")
    if source == "torchvision":
        import torchvision
        extra = {"weights_backbone": None} if which in torchvision.models.list_models(torchvision.models.segmentation) else {}
        size = (3, 299, 299) if "inception" in which else (3, 224, 224)
        return torchvision.models.get_model(which, weights=None, **extra), [torch.randn(batch, *size)]
    if source == "timm":
        import timm
        model = timm.create_model(which, pretrained=False)
        return model, [torch.randn(batch, *model.default_cfg["input_size"])]
    return transformer(which, batch, torch)


FAILURES = (ImportError, AttributeError, TypeError, ValueError, RuntimeError, KeyError, AssertionError)


def admits(name, batch, torch, most_parameters):
    """Whether the rule takes a model, which is made without memory for it."""
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in make(name, batch, torch)[0].parameters()) <= most_parameters
    except (NotImplementedError, *FAILURES):
        return False


def build(name, batch, torch):
    """A model in evaluation, and its inputs in f32 or i64, on the CPU.

    NotImplementedError where the rule leaves it out: more inputs, or a default configuration of which its library makes no
    model.
    """
    try:
        model, inputs = make(name, batch, torch)
    except FAILURES as e:
        raise NotImplementedError(f"{type(e).__name__}: {e}") from e
    return vary(model.eval(), torch), inputs


def vary(model, torch):
    """What an initializer leaves at zero, and statistics of norms, so that all of a model has a part in its results."""
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point() and p.numel() and float(p.abs().max()) == 0:
                torch.nn.init.normal_(p, std=0.02)
        for m in model.modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.running_mean is not None:
                m.running_mean.normal_(std=0.1)
                m.running_var.uniform_(0.5, 1.5)
    return model


def tensors(result, torch):
    """The tensors of a model's result, in order, whatever it is made of."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    return [t for r in result for t in tensors(r, torch)] if isinstance(result, (list, tuple)) else []
