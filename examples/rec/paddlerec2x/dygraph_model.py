"""The hooks that PaddleRec 2.x calls."""

import net
import paddle
from paddle.nn import functional


class DygraphModel:
    """Clicks from eight slots and three numbers."""

    def create_model(self, config):
        return net.WideDeep(
            config.get("hyper_parameters.vocabulary"),
            config.get("hyper_parameters.factors"),
            config.get("hyper_parameters.slots"),
            config.get("hyper_parameters.dense_width"),
            config.get("hyper_parameters.layers"),
        )

    def create_feeds(self, batch, config):
        *slots, dense = batch[1:]
        return batch[0].astype("float32"), slots, dense

    def create_loss(self, logits, label):
        return functional.binary_cross_entropy_with_logits(logits, label)

    def create_optimizer(self, dy_model, config):
        rate = config.get("hyper_parameters.optimizer.learning_rate", 0.001)
        return paddle.optimizer.Adam(
            learning_rate=rate, parameters=dy_model.parameters(), lazy_mode=True
        )

    def create_metrics(self):
        return [paddle.metric.Auc("ROC")], ["auc"]

    def train_forward(self, dy_model, metrics_list, batch, config):
        label, slots, dense = self.create_feeds(batch, config)
        logits = dy_model(slots, dense)
        loss = self.create_loss(logits, label)
        self._count(metrics_list[0], logits, label)
        return loss, metrics_list, {"loss": loss}

    def infer_forward(self, dy_model, metrics_list, batch, config):
        label, slots, dense = self.create_feeds(batch, config)
        self._count(metrics_list[0], dy_model(slots, dense), label)
        return metrics_list, None

    def _count(self, auc, logits, label):
        score = functional.sigmoid(logits)
        auc.update(paddle.concat([1 - score, score], axis=1).numpy(), label.numpy())
